// A BlobStore in memory, that can be told to hang, for tests of what is around it.
#pragma once

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tiering/stores/blob_store.h"
#include "tiering/stores/checksum.h"

namespace kv::tests {

// Holds up whoever passes while it is closed.
class Gate {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = false;
    }
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !closed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
};

// What a store did, in order; outlives the store.
struct StoreLog {
  std::mutex mutex;
  std::vector<std::string> verbs;
  void add(std::string verb) {
    const std::lock_guard lock(mutex);
    verbs.push_back(std::move(verb));
  }
};

class MemoryStore final : public BlobStore {
 public:
  MemoryStore(Gate& gate, StoreLog& log) : gate_(gate), log_(log) {}

  void write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) override {
    gate_.pass();
    log_.add("write " + std::to_string(blobs.size()));
    for (std::size_t i = 0; i < blobs.size(); ++i) {
      entries_[blobs[i].identity.key] = {
          {blobs[i].identity, {blobs[i].tokens.begin(), blobs[i].tokens.end()}},
          {blobs[i].payload.begin(), blobs[i].payload.end()}};
      outcomes[i] = ErrorCode::ok;
    }
  }
  void read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) override {
    gate_.pass();
    log_.add("read " + std::to_string(blobs.size()));
    for (std::size_t i = 0; i < blobs.size(); ++i) {
      const auto found = entries_.find(blobs[i].identity.key);
      outcomes[i] = ErrorCode::corrupt;
      if (found == entries_.end()) continue;
      const Entry& entry = found->second;
      if (entry.scanned.identity.generation != blobs[i].identity.generation) continue;
      if (crc32c(entry.payload) != blobs[i].identity.checksum) continue;
      std::memcpy(blobs[i].payload.data(), entry.payload.data(), entry.payload.size());
      outcomes[i] = ErrorCode::ok;
    }
  }
  void erase(std::span<const BlobErase> blobs) override {
    gate_.pass();
    log_.add("erase " + std::to_string(blobs.size()));
    for (const BlobErase& blob : blobs) entries_.erase(blob.key);
  }
  Result<void> sync() override {
    gate_.pass();
    log_.add("sync");
    return {};
  }
  Result<std::vector<Scanned>> scan_next(std::uint32_t limit) override {
    gate_.pass();
    log_.add("scan " + std::to_string(limit));
    if (std::exchange(is_scanned_, true)) return std::vector<Scanned>();
    std::vector<Scanned> all;
    all.reserve(entries_.size());
    for (const auto& [key, entry] : entries_) all.push_back(entry.scanned);
    return all;
  }

 private:
  struct Entry {
    Scanned scanned;
    std::vector<std::byte> payload;
  };
  Gate& gate_;
  StoreLog& log_;
  std::map<Digest, Entry> entries_;
  bool is_scanned_ = false;
};

}  // namespace kv::tests
