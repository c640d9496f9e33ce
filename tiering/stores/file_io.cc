#include "tiering/stores/file_io.h"

#include <cerrno>
#include <deque>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check.h"

namespace kv {
namespace {

class PlainIo final : public FileIo {
 public:
  void submit(std::uint32_t lane, const FileRequest& request) override {
    ssize_t result = 0;
    do {
      const auto offset = static_cast<off_t>(request.offset);
      result =
          request.kind == FileRequest::Kind::read
              ? ::pread(request.descriptor, request.bytes.data(), request.bytes.size(), offset)
              : ::pwrite(request.descriptor, request.bytes.data(), request.bytes.size(), offset);
    } while (result < 0 && errno == EINTR);
    done_.push_back({.lane = lane, .result = result < 0 ? -errno : result});
  }
  FileCompletion wait() override {
    KV_CHECK(!done_.empty());
    const FileCompletion completion = done_.front();
    done_.pop_front();
    return completion;
  }
  int flush(int descriptor) override { return flush_file(descriptor); }
  int reserve(int descriptor, std::uint64_t bytes) override {
    return reserve_file(descriptor, bytes);
  }

 private:
  std::deque<FileCompletion> done_;
};

}  // namespace

int flush_file(int descriptor) {
  while (::fdatasync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int reserve_file(int descriptor, std::uint64_t bytes) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return errno;
  if (static_cast<std::uint64_t>(status.st_size) >= bytes) return 0;
  const auto missing = static_cast<off_t>(bytes) - status.st_size;
  while (::fallocate(descriptor, 0, status.st_size, missing) != 0) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
    return ::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  return 0;
}

std::unique_ptr<FileIo> make_plain_io() { return std::make_unique<PlainIo>(); }

}  // namespace kv
