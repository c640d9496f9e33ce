// BlobStore: bytes of blocks by slot, with an index that survives a crash. The Engine decides which
// slot holds which block; a store moves bytes, keeps the index and checks what it reads.
//
// Order that every store keeps: payload first, then the index entry; an erased entry is gone before
// its slot is written again. A read checks key, generation and checksum, and says `corrupt` when
// one differs. Owner: the transfer executor. Threads: one caller at a time (the disk worker), but
// where said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"

namespace kv {

// Everything that the index keeps of a copy.
struct BlobIdentity {
  Digest key;
  Digest parent_key;  // the namespace's digest at depth 0
  Digest namespace_digest;
  std::uint32_t depth = 0;
  GroupId group;
  SlotId slot;
  std::uint32_t generation = 0;
  std::uint32_t checksum = 0;  // CRC32C of the payload
};

struct BlobWrite {
  BlobIdentity identity;
  std::span<const Token> tokens;
  std::span<const std::byte> payload;  // exactly the group's block bytes
};
struct BlobRead {
  BlobIdentity identity;  // expected: key, depth, group, slot, generation, checksum
  std::span<std::byte> payload;
};
struct BlobErase {
  Digest key;
  std::uint32_t depth = 0;
  GroupId group;
  SlotId slot;
  std::uint32_t generation = 0;
};

class BlobStore {
 public:
  BlobStore() = default;
  BlobStore(const BlobStore&) = delete;
  BlobStore& operator=(const BlobStore&) = delete;
  BlobStore(BlobStore&&) = delete;
  BlobStore& operator=(BlobStore&&) = delete;
  virtual ~BlobStore() = default;

  // One error code a blob, ok when it is stored or read and verified: ok, corrupt (bytes or
  // identity differ), unavailable (io error), exhausted (no space). A failed write leaves no index
  // entry. Payloads of a batch are in flight together.
  virtual void write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) = 0;
  virtual void read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) = 0;
  virtual void erase(std::span<const BlobErase> blobs) = 0;
  // After ok everything written before survives power loss.
  [[nodiscard]] virtual Result<void> sync() = 0;

  // The index in order of depth (parents before children), at most `limit` entries a call; an empty
  // answer is the end. Damaged entries are skipped, erased and counted.
  struct Scanned {
    BlobIdentity identity;
    std::vector<Token> tokens;
  };
  [[nodiscard]] virtual Result<std::vector<Scanned>> scan_next(std::uint32_t limit) = 0;
};

}  // namespace kv
