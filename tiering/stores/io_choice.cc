#include "tiering/stores/io_choice.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>

#include "tiering/stores/aligned_buffer.h"
#include "tiering/stores/plain_file.h"
#include "tiering/stores/ring_io.h"

namespace kv {
namespace {

// Some file systems take the flag and refuse the read, so one is made.
Result<void> probe(FileIo& io, const std::string& path) {
  const FileDescriptor file = open_plain_file(path, O_RDONLY | O_DIRECT);
  if (!file.is_open()) {
    return Error{ErrorCode::unsupported, "the file system refuses O_DIRECT", "directory"};
  }
  const AlignedBuffer buffer(kDiskUnitBytes);
  if (buffer.bytes().empty()) return Error{ErrorCode::exhausted, "no memory", {}};
  io.submit(0, {.kind = FileRequest::Kind::read,
                .descriptor = file.get(),
                .offset = 0,
                .bytes = buffer.bytes()});
  if (io.wait().result < 0) {
    return Error{ErrorCode::unsupported, "the file system refuses a direct read", "directory"};
  }
  return {};
}

Result<ChosenIo> choose_direct(std::uint32_t queue_depth, const std::string& probe_path) {
  KV_TRY(std::unique_ptr<FileIo> io, make_ring_io(queue_depth));
  KV_TRY_VOID(probe(*io, probe_path));
  return ChosenIo{.io = std::move(io), .direct = true, .plain_reason = {}};
}

}  // namespace

Result<ChosenIo> choose_io(DiskStore::Io wanted, std::uint32_t queue_depth,
                           const std::string& probe_path) {
  if (wanted == DiskStore::Io::plain) {
    return ChosenIo{.io = make_plain_io(), .direct = false, .plain_reason = "configured"};
  }
  Result<ChosenIo> direct = choose_direct(queue_depth, probe_path);
  if (direct.has_value() || wanted == DiskStore::Io::io_uring_direct) return direct;
  return ChosenIo{.io = make_plain_io(), .direct = false, .plain_reason = direct.error().reason};
}

}  // namespace kv
