// DiskStore: the BlobStore on a local disk. Payload in slab files (one size class for each layer
// group: block bytes rounded up to 4 KiB, slot i at offset i * slot bytes, over files of a fixed
// number of slots), O_DIRECT through io_uring with a pread/pwrite path where either is refused; the
// index in RocksDB.
//
// Directory: format (layout and store version, written by temp file, flush, rename), lock (flock:
// one service a directory), slab.<group>.<n>, index/, and while it is being opened `opening`.
// Foreign files are left alone; temp files of an earlier run (format.*.tmp) are removed and
// counted. Modes 0700 and 0600. Only plain files are opened. An index that is damaged at open, or
// whose last two openings did not end, becomes index.damaged (the last one only), and a new one
// starts empty.
//
// A write verifies the payload's checksum, and first removes an index entry that still names the
// slot. A read that finds wrong bytes removes the entry at once. scan_next() gives the entries of
// earlier runs only. A slot beyond the budget is `exhausted`.
//
// Threads: one caller at a time; counters() from any.
// Cost: one disk read or write a block; an index entry of about 200 bytes, one WriteBatch a call;
// 44 bytes of memory a slot; open() reads the index once (about 1 us an entry).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/kv_layout.h"
#include "tiering/stores/blob_store.h"

namespace kv {

struct DiskStoreSeams;

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
    std::uint64_t foreign_files = 0;          // left alone
    std::uint64_t out_of_budget_entries = 0;  // dropped at open: the budget became smaller
    std::uint64_t damaged_indexes = 0;        // set aside at open: what it named is gone
  };

  // What a directory holds, without opening it: its layout, or nothing when it is new. fails:
  // corrupt or unsupported (an older or newer store version), unavailable (io).
  [[nodiscard]] static Result<std::optional<KvLayout>> peek(const std::string& directory);

  // Opens the directory, or makes it for `layout`. fails: busy (another service has it), mismatch
  // (it holds another layout; the field), corrupt (the format file), unavailable, exhausted (no
  // space).
  [[nodiscard]] static Result<std::unique_ptr<DiskStore>> open(const Options& options,
                                                               const KvLayout& layout);
  // The same with faults put in, for tests.
  [[nodiscard]] static Result<std::unique_ptr<DiskStore>> open(const Options& options,
                                                               const KvLayout& layout,
                                                               const DiskStoreSeams& seams);
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;
  DiskStore(DiskStore&&) = delete;
  DiskStore& operator=(DiskStore&&) = delete;
  ~DiskStore() override;

  void write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) override;
  void read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) override;
  void erase(std::span<const BlobErase> blobs) override;
  [[nodiscard]] Result<void> sync() override;
  [[nodiscard]] Result<std::vector<Scanned>> scan_next(std::uint32_t limit) override;

  [[nodiscard]] Io io() const;  // the path in use
  // Why io_uring with O_DIRECT is not in use; empty when it is. Static storage.
  [[nodiscard]] std::string_view plain_reason() const;
  [[nodiscard]] Counters counters() const;
  // Bytes of a disk slot for this group: block bytes rounded up to 4 KiB.
  [[nodiscard]] static std::uint64_t slot_bytes(const KvLayout& layout, GroupId group);

 private:
  struct State;
  explicit DiskStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kv
