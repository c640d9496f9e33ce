// Opens a file of a store's directory when it is a plain file: never through a symlink, which may
// lead to somebody else's file, and without waiting, which a FIFO would.
// Owner: the caller. Threads: none. Cost: three system calls.
#pragma once

#include <string>

#include <sys/types.h>

#include "tiering/stores/file_descriptor.h"

namespace kv {

// As open(2), with O_CLOEXEC. What is there and no plain file fails with ELOOP (a symlink), EISDIR
// or EINVAL.
[[nodiscard]] FileDescriptor open_plain_file(const std::string& path, int flags, mode_t mode = 0);

}  // namespace kv
