// DiskStore: the BlobStore on a local disk. Payload in slab files (one size class for each layer
// group: block bytes rounded up to 4 KiB, slot i at offset i * slot bytes), O_DIRECT through
// io_uring with a pread/pwrite path where either is refused; the index in RocksDB (DESIGN section
// 6).
//
// Directory: format (layout and store version, written by temp file, flush, rename), lock (flock:
// one service a directory), slab.<group>.<n>, index/. Foreign files are left alone; temp files of
// an earlier run are removed and counted. Threads: one caller at a time; counters() from any. Cost:
// one disk read or write a block; the index entry is about 200 bytes and one WriteBatch a call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allocator/kv_layout.h"
#include "tiering/stores/blob_store.h"

namespace kv {

class DiskStore final : public BlobStore {
 public:
  enum class Io : std::uint8_t { automatic, io_uring_direct, plain };  // automatic: try, fall back
  struct Options {
    std::string directory;
    std::uint64_t bytes = 0;  // budget of the payload
    Io io = Io::automatic;
    std::uint32_t queue_depth = 32;
    std::uint64_t slab_bytes_max = std::uint64_t{16} << 30U;  // a slab file's size
  };
  struct Counters {
    std::uint64_t written_blocks = 0, read_blocks = 0, erased_blocks = 0;
    std::uint64_t corrupt_blocks = 0, failed_writes = 0, failed_reads = 0;
    std::uint64_t damaged_entries = 0, temp_files_removed = 0;
  };

  // What a directory holds, without opening it: its layout, or nothing when it is new. fails:
  // corrupt or unsupported (an older or newer store version), unavailable (io).
  [[nodiscard]] static Result<std::optional<KvLayout>> peek(const std::string& directory);

  // Opens the directory, or makes it for `layout`. fails: busy (another service has it), mismatch
  // (it holds another layout; the field), corrupt, unavailable, exhausted (no space).
  [[nodiscard]] static Result<std::unique_ptr<DiskStore>> open(const Options& options,
                                                               const KvLayout& layout);
  ~DiskStore() override;

  void write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) override;
  void read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) override;
  void erase(std::span<const BlobErase> blobs) override;
  [[nodiscard]] Result<void> sync() override;
  [[nodiscard]] Result<std::vector<Scanned>> scan_next(std::uint32_t limit) override;

  [[nodiscard]] Io io() const;  // the path in use
  [[nodiscard]] Counters counters() const;
  // Bytes of a disk slot for this group: block bytes rounded up to 4 KiB.
  [[nodiscard]] static std::uint64_t slot_bytes(const KvLayout& layout, GroupId group);

 private:
  struct State;
  explicit DiskStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kv
