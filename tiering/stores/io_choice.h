// Chooses how a disk store moves bytes: io_uring with O_DIRECT where the kernel, this process and
// the file system allow both, else pread and pwrite through the page cache. Owner: the disk store,
// at open. Threads: none. Cost: one probing read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "allocator/base/result.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/file_io.h"

namespace kv {

struct ChosenIo {
  std::unique_ptr<FileIo> io;
  bool direct = false;
  std::string_view plain_reason;  // why not direct; static storage
};

// `probe_path` names a file of the directory. fails, where direct is demanded: unsupported,
// unavailable.
[[nodiscard]] Result<ChosenIo> choose_io(DiskStore::Io wanted, std::uint32_t queue_depth,
                                         const std::string& probe_path);

}  // namespace kv
