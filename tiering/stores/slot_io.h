// SlotIo: the payload half of a disk store: moves blocks between memory and their slots, many in
// flight, and verifies each. It knows nothing of the index.
// A payload that is aligned and fills its slot moves without a copy; another one goes through a
// bounce buffer, with the slot's trailer where there is room for it.
// Owner: the disk store. Threads: one caller at a time.
// Cost: one disk operation and one CRC32C a block; bounce buffers of at most kBounceBytesMax.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/kv_layout.h"
#include "tiering/stores/aligned_buffer.h"
#include "tiering/stores/blob_store.h"
#include "tiering/stores/file_io.h"
#include "tiering/stores/slab_files.h"

namespace kv {

class SlotIo {
 public:
  struct Options {
    std::string directory;
    KvLayout layout;
    std::uint64_t budget_bytes = 0;
    std::uint64_t slab_bytes = 0;
    std::uint32_t queue_depth = 1;
    bool direct = false;
  };
  static constexpr std::uint64_t kBounceBytesMax = std::uint64_t{128} << 20U;

  SlotIo(const Options& options, std::unique_ptr<FileIo> io);

  [[nodiscard]] std::uint32_t slot_count(GroupId group) const { return files_.slot_count(group); }

  // Blobs whose outcome is ok on entry, the others are left out. requires (both): slot and sizes
  // fit.
  void write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes);
  void read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes);

  [[nodiscard]] Result<void> flush() { return files_.flush(); }
  [[nodiscard]] Result<void> trim() { return files_.trim(); }

 private:
  // The bytes that move: the payload itself, or the lane's bounce buffer; empty without memory.
  [[nodiscard]] std::span<std::byte> memory_for(std::span<std::byte> payload, GroupId group,
                                                std::uint32_t lane);
  [[nodiscard]] Result<FileRequest> start_write(const BlobWrite& blob, std::uint32_t lane);
  [[nodiscard]] Result<FileRequest> start_read(const BlobRead& blob, std::uint32_t lane);
  [[nodiscard]] ErrorCode finish_read(const BlobRead& blob, std::uint32_t lane, int error) const;

  std::unique_ptr<FileIo> io_;
  SlabFiles files_;
  std::uint64_t slot_bytes_max_ = 0;
  std::vector<AlignedBuffer> lanes_;
};

}  // namespace kv
