// The FileIo on io_uring: what is submitted is in flight together. Where the kernel refuses the
// ring later on (a filter of system calls, for one), what it has not begun fails with EIO, and from
// then on bytes move by pread and pwrite.
// Owner, threads: as FileIo. Cost: one ring; a system call for a few submissions.
#pragma once

#include <cstdint>
#include <memory>

#include "allocator/base/result.h"
#include "tiering/stores/file_io.h"

namespace kv {

// fails: unsupported (an old kernel, or forbidden to this process), unavailable.
[[nodiscard]] Result<std::unique_ptr<FileIo>> make_ring_io(std::uint32_t queue_depth);

}  // namespace kv
