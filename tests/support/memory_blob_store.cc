#include "tests/support/memory_blob_store.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "allocator/base/check.h"
#include "tiering/stores/checksum.h"

namespace kv::testing {

void MemoryBlobStore::write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) {
  KV_CHECK(blobs.size() == outcomes.size());
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const BlobWrite& blob = blobs[i];
    blobs_[{blob.identity.group, blob.identity.slot}] = {
        blob.identity,
        {blob.tokens.begin(), blob.tokens.end()},
        {blob.payload.begin(), blob.payload.end()}};
    outcomes[i] = ErrorCode::ok;
  }
}

const MemoryBlobStore::Blob* MemoryBlobStore::find(const BlobIdentity& identity) const {
  const auto found = blobs_.find({identity.group, identity.slot});
  if (found == blobs_.end()) return nullptr;
  const BlobIdentity& kept = found->second.identity;
  const bool same = kept.key == identity.key && kept.generation == identity.generation &&
                    kept.depth == identity.depth && kept.checksum == identity.checksum;
  return same ? &found->second : nullptr;
}

void MemoryBlobStore::read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) {
  KV_CHECK(blobs.size() == outcomes.size());
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const Blob* blob = find(blobs[i].identity);
    const bool good = blob != nullptr && blob->payload.size() == blobs[i].payload.size() &&
                      crc32c(blob->payload) == blobs[i].identity.checksum;
    if (good) std::memcpy(blobs[i].payload.data(), blob->payload.data(), blob->payload.size());
    outcomes[i] = good ? ErrorCode::ok : ErrorCode::corrupt;
  }
}

void MemoryBlobStore::erase(std::span<const BlobErase> blobs) {
  for (const BlobErase& erase : blobs) {
    const auto found = blobs_.find({erase.group, erase.slot});
    if (found == blobs_.end()) continue;
    const BlobIdentity& kept = found->second.identity;
    if (kept.key == erase.key && kept.generation == erase.generation) blobs_.erase(found);
  }
}

Result<std::vector<BlobStore::Scanned>> MemoryBlobStore::scan_next(std::uint32_t limit) {
  if (scan_offset_ == 0) {
    scanned_.clear();
    for (const auto& [place, blob] : blobs_) scanned_.push_back(&blob);
    std::ranges::sort(scanned_, [](const Blob* a, const Blob* b) {
      return std::tie(a->identity.depth, a->identity.key) <
             std::tie(b->identity.depth, b->identity.key);
    });
  }
  std::vector<Scanned> entries;
  for (; scan_offset_ < scanned_.size() && entries.size() < limit; ++scan_offset_) {
    entries.push_back({scanned_[scan_offset_]->identity, scanned_[scan_offset_]->tokens});
  }
  return entries;
}

void MemoryBlobStore::damage_all() {
  for (auto& [place, blob] : blobs_) blob.payload[0] ^= std::byte{1};
}

}  // namespace kv::testing
