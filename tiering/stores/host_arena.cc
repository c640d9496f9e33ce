#include "tiering/stores/host_arena.h"

#include <cerrno>
#include <cstdio>
#include <limits>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace kv {
namespace {

constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20U;
// MFD_HUGE_2MB, which glibc 2.36 does not name.
constexpr unsigned kHugePageFlag = 21U << 26U;
constexpr std::uint64_t kArenaBytesMax = std::uint64_t{1} << 46U;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

Error memory_error(int error_number, std::string_view reason) {
  const bool no_memory = error_number == ENOMEM || error_number == ENOSPC ||
                         error_number == EFBIG || error_number == EAGAIN;
  return Error{no_memory ? ErrorCode::exhausted : ErrorCode::unavailable, reason, {}};
}

// Touches every page; says so when the memory is not there, instead of a SIGBUS later.
Result<void> populate(std::byte* base, std::uint64_t bytes, std::uint64_t page_bytes) {
  if (::madvise(base, bytes, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) return memory_error(errno, "host arena: cannot populate");
  for (std::uint64_t at = 0; at < bytes; at += page_bytes) {  // a kernel before 5.14
    *const_cast<volatile std::byte*>(base + at) = std::byte{0};
  }
  return {};
}

}  // namespace

Result<HostArena> HostArena::make(const Options& options) {
  if (options.bytes == 0) return Error{ErrorCode::invalid, "host arena: zero bytes", "bytes"};
  if (options.bytes > kArenaBytesMax) {
    return Error{ErrorCode::exhausted, "host arena: more than 64 TiB", "bytes"};
  }
  if (options.huge_pages) {
    // The file can be made without huge pages in the system; only mapping it tells.
    if (Result<HostArena> arena = make_with(options, true)) return arena;
  }
  return make_with(options, false);
}

Result<HostArena> HostArena::make_with(const Options& options, bool huge) {
  HostArena arena;
  arena.huge_ = huge;
  const auto small_page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t page_bytes = huge ? kHugePageBytes : small_page_bytes;
  const std::uint64_t bytes = round_up(options.bytes, page_bytes);
  const unsigned huge_flags = huge ? MFD_HUGETLB | kHugePageFlag : 0U;
  arena.descriptor_ =
      FileDescriptor(::memfd_create(options.name, MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags));
  if (!arena.descriptor_.is_open()) return memory_error(errno, "host arena: memfd_create");
  const int descriptor = arena.descriptor();
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    return memory_error(errno, "host arena: cannot size the memory file");
  }
  // Readers could otherwise reopen their descriptor for writing through /proc.
  if (::fchmod(descriptor, S_IRUSR) != 0) {
    return memory_error(errno, "host arena: cannot set the mode");
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) return memory_error(errno, "host arena: cannot map");
  arena.base_ = static_cast<std::byte*>(base);
  arena.bytes_ = bytes;
  // The mode alone stops no reader of the same user, who may set another. The mapping above stays
  // writable. A kernel before 5.1 has no such seal.
  constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  arena.write_sealed_ = options.sole_writer &&
                        ::fcntl(descriptor, F_ADD_SEALS, kSizeSeals | F_SEAL_FUTURE_WRITE) == 0;
  if (::fcntl(descriptor, F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return memory_error(errno, "host arena: cannot seal");
  }
  if (options.populate) KV_TRY_VOID(populate(arena.base_, bytes, page_bytes));
  return arena;
}

HostArena::HostArena(HostArena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      descriptor_(std::move(other.descriptor_)),
      huge_(other.huge_),
      write_sealed_(other.write_sealed_) {}

HostArena& HostArena::operator=(HostArena&& other) noexcept {
  if (this != &other) {
    if (base_ != nullptr) ::munmap(base_, bytes_);
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    descriptor_ = std::move(other.descriptor_);
    huge_ = other.huge_;
    write_sealed_ = other.write_sealed_;
  }
  return *this;
}

HostArena::~HostArena() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

Result<int> HostArena::read_only_descriptor() const {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor());
  const int reopened = ::open(path, O_RDONLY | O_CLOEXEC);
  if (reopened < 0) return memory_error(errno, "host arena: cannot reopen for reading");
  return reopened;
}

Result<MappedArena> MappedArena::map(int descriptor, std::uint64_t bytes, bool writable) {
  if (bytes == 0 || bytes > kArenaBytesMax) {
    return Error{ErrorCode::invalid, "mapped arena: absurd size", "bytes"};
  }
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Error{ErrorCode::invalid, "mapped arena: not sealed against shrinking", "descriptor"};
  }
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return memory_error(errno, "mapped arena: fstat");
  if (status.st_size < 0 || static_cast<std::uint64_t>(status.st_size) < bytes) {
    return Error{ErrorCode::invalid, "mapped arena: smaller than announced", "bytes"};
  }
  // A mapping of huge pages can only be unmapped in whole pages.
  const auto page_bytes = static_cast<std::uint64_t>(status.st_blksize);
  const std::uint64_t mapped_bytes = page_bytes == 0 ? bytes : round_up(bytes, page_bytes);
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base = ::mmap(nullptr, mapped_bytes, protection, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) {
    if (errno == EACCES || errno == EPERM) {
      return Error{ErrorCode::invalid, "mapped arena: the descriptor cannot be mapped so",
                   "descriptor"};
    }
    return memory_error(errno, "mapped arena: cannot map");
  }
  MappedArena arena;
  arena.base_ = static_cast<std::byte*>(base);
  arena.bytes_ = bytes;
  arena.mapped_bytes_ = mapped_bytes;
  return arena;
}

MappedArena::MappedArena(MappedArena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

MappedArena& MappedArena::operator=(MappedArena&& other) noexcept {
  if (this != &other) {
    if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  }
  return *this;
}

MappedArena::~MappedArena() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

}  // namespace kv
