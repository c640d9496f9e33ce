// DiskIndex: a small ordered store of byte strings that survives a crash (RocksDB with its WAL). It
// knows nothing of blocks. After a failed write it tries to recover by itself before the next one.
// Owner: the disk store. Threads: one caller at a time. Cost: about 4 us a key.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.h"

namespace rocksdb {
class Env;
}

namespace kv {

class DiskIndex {
 public:
  struct Entry {
    std::string key, value;
  };
  // `environment` is RocksDB's view of the system, for tests; null is the real one.
  // fails: corrupt, unavailable, exhausted (no space).
  [[nodiscard]] static Result<std::unique_ptr<DiskIndex>> open(const std::string& directory,
                                                               rocksdb::Env* environment);
  DiskIndex(const DiskIndex&) = delete;
  DiskIndex& operator=(const DiskIndex&) = delete;
  DiskIndex(DiskIndex&&) = delete;
  DiskIndex& operator=(DiskIndex&&) = delete;
  ~DiskIndex();

  // All of it or nothing; survives a kill when it returns ok, power loss after flush(). After an
  // error an entry may still turn up: erase it later.
  [[nodiscard]] Result<void> write(std::span<const Entry> puts,
                                   std::span<const std::string> erased_keys);
  [[nodiscard]] Result<std::optional<std::string>> read(std::string_view key) const;
  // In order of key, the first at or after `from`; fewer than `limit` only at the end.
  [[nodiscard]] Result<std::vector<Entry>> read_from(std::string_view from,
                                                     std::uint32_t limit) const;
  [[nodiscard]] Result<void> flush();

 private:
  struct State;
  explicit DiskIndex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kv
