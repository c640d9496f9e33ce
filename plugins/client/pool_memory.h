// PoolMemory: the device pool that the service passed, mapped into this process.
// Owner: one Client; unmapped at destruction. Threads: the memory may be used from any, but not by
// forked children: there it is not mapped.
// Cost: one mapping; pages are the service's, none is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include "allocator/base/result.h"

namespace kv::client {

class PoolMemory {
 public:
  // Takes no ownership of the descriptor. Writes into a file that shrinks would kill this process,
  // so it must be sealed against shrinking. fails: invalid (not sealed, or smaller than `bytes`),
  // unavailable.
  [[nodiscard]] static Result<PoolMemory> map(int descriptor, std::uint64_t bytes, bool writable);

  PoolMemory() = default;
  PoolMemory(PoolMemory&& other) noexcept;
  PoolMemory& operator=(PoolMemory&& other) noexcept;
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;
  ~PoolMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return {base_, bytes_}; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  pid_t process_ = 0;  // that mapped it
};

}  // namespace kv::client
