// FileIo: reads and writes of files, several in flight, each tried once. What comes back may be
// short or an error; IoPipeline repeats short ones. This is also the seam where tests put faults.
// Owner: the disk store. Threads: one caller at a time. Cost: the system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace kv {

struct FileRequest {
  enum class Kind : std::uint8_t { read, write };
  Kind kind = Kind::read;
  int descriptor = -1;
  std::uint64_t offset = 0;
  std::span<std::byte> bytes;  // a write only reads them
};

struct FileCompletion {
  std::uint32_t lane = 0;
  std::int64_t result = 0;  // bytes moved, or a negative errno
};

class FileIo {
 public:
  FileIo() = default;
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;
  FileIo(FileIo&&) = delete;
  FileIo& operator=(FileIo&&) = delete;
  virtual ~FileIo() = default;

  // Starts a request. requires: lane < the queue depth, and no request of this lane is in flight.
  virtual void submit(std::uint32_t lane, const FileRequest& request) = 0;
  // Waits for one request to end. requires: one is in flight.
  virtual FileCompletion wait() = 0;
  // fdatasync: 0 or an errno.
  virtual int flush(int descriptor) = 0;
  // Makes the file at least `bytes` long with room on the disk: 0 or an errno.
  virtual int reserve(int descriptor, std::uint64_t bytes) = 0;
};

// fdatasync and fallocate (ftruncate where a file system has none), for every implementation.
[[nodiscard]] int flush_file(int descriptor);
[[nodiscard]] int reserve_file(int descriptor, std::uint64_t bytes);

// pread and pwrite, done within submit().
[[nodiscard]] std::unique_ptr<FileIo> make_plain_io();

}  // namespace kv
