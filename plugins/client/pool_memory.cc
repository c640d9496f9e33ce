#include "plugins/client/pool_memory.h"

#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kv::client {

Result<PoolMemory> PoolMemory::map(int descriptor, std::uint64_t bytes, bool writable) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Error{ErrorCode::invalid, "the pool's memory is not sealed against shrinking", "pool"};
  }
  struct stat status{};
  const bool holds = fstat(descriptor, &status) == 0 && bytes > 0 && status.st_size > 0 &&
                     static_cast<std::uint64_t>(status.st_size) >= bytes;
  if (!holds) return Error{ErrorCode::invalid, "the pool's memory is smaller than said", "pool"};
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base = mmap(nullptr, bytes, protection, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) {
    return Error{ErrorCode::unavailable, "the pool's memory cannot be mapped", "pool"};
  }
  PoolMemory pool;
  pool.base_ = static_cast<std::byte*>(base);
  pool.bytes_ = bytes;
  pool.process_ = getpid();
  // A forked child could write into slots that the service gave to others when this process died.
  if (madvise(base, bytes, MADV_DONTFORK) != 0) {
    return Error{ErrorCode::unavailable, "the pool's memory cannot be kept from children", "pool"};
  }
  return pool;
}

PoolMemory::PoolMemory(PoolMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      process_(std::exchange(other.process_, 0)) {}

PoolMemory& PoolMemory::operator=(PoolMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(process_, other.process_);
  return *this;
}

// In a forked child something else may lie at these addresses by now.
PoolMemory::~PoolMemory() {
  if (base_ != nullptr && process_ == getpid()) munmap(base_, bytes_);
}

}  // namespace kv::client
