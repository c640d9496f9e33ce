// A TestClient with the device pool mapped: writes KV into the slots it was given, as a runner
// does, and looks into them. The KV of block i of a sequence published with seed s is pattern(s +
// i). Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cachesvc/shell/test_client.h"

namespace kv::tests {

class PoolClient {
 public:
  explicit PoolClient(const std::string& dir);
  ~PoolClient();
  PoolClient(const PoolClient&) = delete;
  PoolClient& operator=(const PoolClient&) = delete;
  PoolClient(PoolClient&&) = delete;
  PoolClient& operator=(PoolClient&&) = delete;

  [[nodiscard]] bool is_ready() const { return memory_ != nullptr; }
  [[nodiscard]] TestClient& client() { return client_; }
  [[nodiscard]] std::uint64_t counter(const std::string& name) { return client_.counter(name); }
  [[nodiscard]] TestClient::Reply demote(wire::Tier tier) { return client_.demote(tier); }
  [[nodiscard]] std::uint64_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::uint32_t slot_count() const { return slot_count_; }

  // Opens and admits a sequence of the tokens 0, 1, 2 ..., writes its blocks and publishes them;
  // frees it.
  void publish(std::uint64_t sequence, std::uint32_t token_count, std::uint8_t seed);
  // Opens and admits such a sequence and waits for its loads, again when a load failed.
  struct Hit {
    std::uint64_t device_tokens = 0, host_tokens = 0, disk_tokens = 0;
    std::vector<std::uint32_t> slots;
  };
  [[nodiscard]] Hit admit_again(std::uint64_t sequence, std::uint32_t token_count);

  [[nodiscard]] bool holds(std::uint32_t slot, std::uint8_t seed) const;
  void wipe_device();
  [[nodiscard]] static std::string pattern(std::uint8_t seed);

 private:
  [[nodiscard]] std::uint8_t* slot(std::uint32_t index) const;

  TestClient client_;
  std::uint8_t* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t offset_ = 0, slot_bytes_ = 0;
  std::uint32_t slot_count_ = 0;
  std::uint64_t step_ = 0;
};

}  // namespace kv::tests
