#include "tiering/stores/slab_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "allocator/base/check.h"
#include "tiering/stores/file_error.h"
#include "tiering/stores/plain_file.h"
#include "tiering/stores/slab_name.h"

namespace kv {
namespace {

constexpr std::uint64_t kGrowthBytes = std::uint64_t{64} << 20U;
// Left to the index: its log and the table that it becomes, on a small disk an eighth.
constexpr std::uint64_t kIndexBytesMax = std::uint64_t{64} << 20U;

// What slabs may still take of the disk; everything, where the system does not tell.
std::uint64_t room_for_slabs(int descriptor) {
  struct statvfs status{};
  if (::fstatvfs(descriptor, &status) != 0 || status.f_blocks == 0) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  const std::uint64_t unit = status.f_frsize;
  const std::uint64_t index = std::min<std::uint64_t>(kIndexBytesMax, status.f_blocks / 8 * unit);
  const std::uint64_t available = status.f_bavail * unit;
  return available > index ? available - index : 0;
}

}  // namespace

SlabFiles::SlabFiles(Options options, FileIo& io) : options_(std::move(options)), io_(&io) {
  // A block has a slot in every group.
  const std::uint64_t block_bytes =
      std::accumulate(options_.slot_bytes.begin(), options_.slot_bytes.end(), std::uint64_t{0});
  for (const std::uint64_t slot_bytes : options_.slot_bytes) {
    KV_CHECK(slot_bytes > 0);
    constexpr std::uint64_t kSlotsMax = std::numeric_limits<std::uint32_t>::max() - 1;
    Group group;
    group.slot_bytes = slot_bytes;
    group.slot_count =
        static_cast<std::uint32_t>(std::min(options_.budget_bytes / block_bytes, kSlotsMax));
    group.slots_per_file = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(options_.slab_bytes / slot_bytes, 1, kSlotsMax));
    group.files.resize((std::size_t{group.slot_count} + group.slots_per_file - 1) /
                       group.slots_per_file);
    groups_.push_back(std::move(group));
  }
}

std::uint32_t SlabFiles::slot_count(GroupId group) const {
  return group.value < groups_.size() ? groups_[group.value].slot_count : 0;
}
std::uint64_t SlabFiles::slot_bytes(GroupId group) const { return groups_[group.value].slot_bytes; }

std::string SlabFiles::path(std::size_t group, std::size_t file) const {
  return options_.directory + "/" + slab_name(group, file);
}

std::uint64_t SlabFiles::file_bytes_max(const Group& group, std::size_t file) const {
  const std::uint64_t first = std::uint64_t{group.slots_per_file} * file;
  if (first >= group.slot_count) return 0;
  return std::min<std::uint64_t>(group.slots_per_file, group.slot_count - first) * group.slot_bytes;
}

Result<SlabFiles::File*> SlabFiles::opened(GroupId group_id, SlotId slot, bool create) {
  Group& group = groups_[group_id.value];
  KV_CHECK(slot.value < group.slot_count);
  const std::size_t number = slot.value / group.slots_per_file;
  File& file = group.files[number];
  if (file.descriptor.is_open()) return &file;
  const std::string name = path(group_id.value, number);
  const int flags = O_RDWR | (options_.direct ? O_DIRECT : 0);
  FileDescriptor descriptor = open_plain_file(name, flags);
  if (!descriptor.is_open() && errno == ENOENT && create) {
    descriptor = open_plain_file(name, flags | O_CREAT, S_IRUSR | S_IWUSR);
    directory_changed_ = true;
  }
  if (!descriptor.is_open()) {
    if (errno == ENOENT) return Error{ErrorCode::not_found, "slab file: missing", {}};
    return file_error(errno, "slab file: cannot open");
  }
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) return file_error(errno, "slab file: fstat");
  file.descriptor = std::move(descriptor);
  file.bytes = static_cast<std::uint64_t>(status.st_size);
  return &file;
}

Result<SlabFiles::Place> SlabFiles::place_to_read(GroupId group_id, SlotId slot) {
  KV_TRY(const File* file, opened(group_id, slot, false));
  const Group& group = groups_[group_id.value];
  return Place{.descriptor = file->descriptor.get(),
               .offset = slot.value % group.slots_per_file * group.slot_bytes};
}

Result<SlabFiles::Place> SlabFiles::place_to_write(GroupId group_id, SlotId slot) {
  KV_TRY(File * file, opened(group_id, slot, true));
  const Group& group = groups_[group_id.value];
  const std::uint64_t offset = slot.value % group.slots_per_file * group.slot_bytes;
  const std::uint64_t end = offset + group.slot_bytes;
  if (end > file->bytes) {
    KV_TRY_VOID(grow(*file, end, file_bytes_max(group, slot.value / group.slots_per_file)));
  }
  file->written = true;
  return Place{.descriptor = file->descriptor.get(), .offset = offset};
}

Result<void> SlabFiles::grow(File& file, std::uint64_t end, std::uint64_t bytes_max) {
  const int descriptor = file.descriptor.get();
  const std::uint64_t room = room_for_slabs(descriptor);
  if (room < end - file.bytes) return file_error(ENOSPC, "slab file: no room left");
  std::uint64_t wanted = std::min(std::max(end, file.bytes + kGrowthBytes), bytes_max);
  if (room < wanted - file.bytes) wanted = end;  // the last room: this slot only
  int error = io_->reserve(descriptor, wanted);
  if (error == ENOSPC && wanted > end) {
    wanted = end;
    error = io_->reserve(descriptor, wanted);
  }
  if (error != 0) return file_error(error, "slab file: cannot reserve room");
  file.bytes = wanted;
  return {};
}

Result<void> SlabFiles::flush() {
  constexpr std::string_view kFailed = "slab file: a flush failed; reopen the store";
  if (flush_failed_) return Error{ErrorCode::unavailable, kFailed, {}};
  for (Group& group : groups_) {
    for (File& file : group.files) {
      struct stat status{};
      if (file.descriptor.is_open() && ::fstat(file.descriptor.get(), &status) == 0 &&
          status.st_nlink == 0) {
        return Error{ErrorCode::unavailable, "slab file: it was removed; start again", {}};
      }
      if (!file.written) continue;
      if (io_->flush(file.descriptor.get()) != 0) {
        flush_failed_ = true;
        return Error{ErrorCode::unavailable, kFailed, {}};
      }
      file.written = false;
    }
  }
  if (directory_changed_) {
    const FileDescriptor directory(
        ::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.is_open() || ::fsync(directory.get()) != 0) {
      return file_error(errno, "slab file: cannot flush the directory");
    }
    directory_changed_ = false;
  }
  return {};
}

Result<void> SlabFiles::trim() {
  std::error_code error;
  std::filesystem::directory_iterator at(options_.directory, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::optional<SlabName> name = parse_slab_name(at->path().filename().string());
    if (!name || name->group >= groups_.size()) continue;
    KV_TRY_VOID(trim_file(name->group, name->file));
  }
  if (error) return file_error(error.value(), "disk store: cannot list the directory");
  return {};
}

Result<void> SlabFiles::trim_file(std::size_t group, std::size_t file) {
  const std::string name = path(group, file);
  const std::uint64_t bytes_max = file_bytes_max(groups_[group], file);
  if (bytes_max == 0) {
    if (::unlink(name.c_str()) != 0) return file_error(errno, "slab file: cannot remove");
    return {};
  }
  const FileDescriptor opened = open_plain_file(name, O_WRONLY);
  // Something else has its name: reading its blocks is where they are missed.
  if (!opened.is_open() && errno == EISDIR) return {};
  if (!opened.is_open()) return file_error(errno, "slab file: cannot open, or no plain file");
  struct stat status{};
  if (::fstat(opened.get(), &status) != 0) return file_error(errno, "slab file: fstat");
  if (static_cast<std::uint64_t>(status.st_size) <= bytes_max) return {};
  if (::ftruncate(opened.get(), static_cast<off_t>(bytes_max)) != 0) {
    return file_error(errno, "slab file: cannot shorten");
  }
  return {};
}

}  // namespace kv
