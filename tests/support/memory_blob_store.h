// MemoryBlobStore: a BlobStore that keeps everything in memory, with the checks of a real one: key,
// generation and checksum are compared at each read. Tests may damage what it holds.
// Owner: the test or an in-process service. Threads: none. Cost: O(log n) and a memcpy a blob.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "tiering/stores/blob_store.h"

namespace kv::testing {

class MemoryBlobStore final : public BlobStore {
 public:
  void write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) override;
  void read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) override;
  void erase(std::span<const BlobErase> blobs) override;
  [[nodiscard]] Result<void> sync() override { return {}; }
  [[nodiscard]] Result<std::vector<Scanned>> scan_next(std::uint32_t limit) override;

  void restart_scan() { scan_offset_ = 0; }
  [[nodiscard]] std::size_t blob_count() const { return blobs_.size(); }
  // Flips one bit in the first byte of each payload.
  void damage_all();

 private:
  struct Blob {
    BlobIdentity identity;
    std::vector<Token> tokens;
    std::vector<std::byte> payload;
  };
  using Place = std::pair<GroupId, SlotId>;
  [[nodiscard]] const Blob* find(const BlobIdentity& identity) const;

  std::map<Place, Blob> blobs_;
  std::vector<const Blob*> scanned_;  // by depth, while a scan goes on
  std::size_t scan_offset_ = 0;
};

}  // namespace kv::testing
