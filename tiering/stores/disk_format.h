// The `format` file of a disk store: which store version and which layout a directory holds, and
// how slots map to slab files. Written once, by temp file, flush and rename. Owner: the disk store.
// Threads: one caller at a time. Cost: one small file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/base/result.h"
#include "allocator/kv_layout.h"

namespace kv {

inline constexpr std::uint32_t kDiskStoreVersion = 1;

struct DiskFormat {
  std::uint64_t slab_bytes = 0;  // at most, of one slab file
  KvLayout layout;
};

[[nodiscard]] std::string encode_disk_format(const DiskFormat& format);
// fails: corrupt, unsupported (an older or newer store version).
[[nodiscard]] Result<DiskFormat> decode_disk_format(std::string_view bytes);

// Nothing when there is no such file. fails: as decode_disk_format, and unavailable.
[[nodiscard]] Result<std::optional<DiskFormat>> read_disk_format(const std::string& directory);
// fails: exhausted (no space), unavailable.
[[nodiscard]] Result<void> write_disk_format(const std::string& directory,
                                             const DiskFormat& format);

}  // namespace kv
