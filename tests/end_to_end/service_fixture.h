// What the end-to-end tests share: a running `cachesvc serve`, a client that writes blocks as a
// runner does, and bytes that follow from the tokens of a block. Owner: a test. Threads: one
// caller.
#pragma once

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

#include "allocator/base/prng.h"
#include "plugins/client/client.h"
#include "tests/plugins/client/temporary_dir.h"
#include "tests/tools/cachectl/program.h"

namespace kv::test {

using client::Client;
using client::in;
using std::chrono::seconds;

inline constexpr std::uint32_t kBlockTokens = 16;
inline constexpr std::uint64_t kBlockBytes = 2'048;  // 16 tokens x (K + V) x 16 floats

inline KvLayout test_layout() {
  KvLayout layout{.block_tokens = kBlockTokens, .groups = {}};
  layout.groups.push_back({.layer_count = 1, .kv_head_count = 2, .head_dim_k = 8, .head_dim_v = 8});
  return layout;
}

inline NamespaceFields test_namespace() {
  NamespaceFields fields;
  fields.weights = "test-weights";
  fields.model_config = "test-config";
  return fields;
}

// Tokens that no other seed shares a block with.
inline std::vector<Token> prompt_of(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(prng.below(50'000));
  return tokens;
}

// The bytes of the block that ends the prefix.
inline std::vector<std::byte> block_bytes_of(std::span<const Token> prefix) {
  std::uint64_t seed = 17;
  for (const Token token : prefix) seed = seed * 1'099'511'628'211U + token;
  Prng prng(seed);
  std::vector<std::byte> bytes(kBlockBytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.below(256));
  return bytes;
}

class ServiceTest : public testing::Test {
 protected:
  // Small tiers, so that tests reach their ends; waits until it listens.
  void start_service() {
    service_ = std::make_unique<Program>(
        std::vector<std::string>{built("cachesvc"), "serve", "--dir", dir_.path()},
        std::vector<std::string>{"CACHESVC_DEVICE__BYTES=1MiB", "CACHESVC_HOST__BYTES=2MiB",
                                 "CACHESVC_DISK__BYTES=64MiB"});
    ASSERT_TRUE(service_->read_lines(1, seconds(30))) << service_->err();
  }
  void kill_service() {
    service_->signal(SIGKILL);
    EXPECT_EQ(service_->wait(seconds(30)).exit_code, 128 + SIGKILL);
  }
  void stop_service() {
    service_->signal(SIGTERM);
    const auto ended = service_->wait(seconds(30));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  [[nodiscard]] std::unique_ptr<Client> connect(Client::Role role = Client::Role::runner) const {
    Client::Options options;
    options.dir = dir_.path();
    options.role = role;
    options.deadline = in(seconds(20));
    auto made = Client::connect(options);
    EXPECT_TRUE(made) << (made ? "" : made.error().reason);
    return made ? std::move(*made) : nullptr;
  }
  static void wait_for(Client& client,
                       const std::function<bool(const client::ServiceStatus&)>& reached) {
    const auto deadline = in(seconds(30));
    while (true) {
      const auto status = client.status(deadline);
      ASSERT_TRUE(status) << status.error().reason;
      if (reached(*status)) return;
      (void)poll(nullptr, 0, 1);  // between two questions; nothing hangs on the time
    }
  }
  // The service reads its disk while it serves.
  static void wait_recovered(Client& client) {
    wait_for(client, [](const auto& status) { return !status.recovering; });
  }
  static std::uint64_t counter(Client& client, const std::string& name) {
    const auto status = client.status(in(seconds(20)));
    EXPECT_TRUE(status);
    for (const auto& entry :
         status ? status->counters : std::vector<client::ServiceStatus::Counter>()) {
      if (entry.name == name) return entry.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  TemporaryDir dir_;
  std::unique_ptr<Program> service_;
};

// One runner: a client, its pool and its steps. Every step is completed when it is sent, as on a
// CPU.
class TestRunner {
 public:
  explicit TestRunner(std::unique_ptr<Client> client) : client_(std::move(client)) { attach(); }

  void attach() {
    auto pool = client_->attach_pool(test_layout(), in(seconds(20)));
    ASSERT_TRUE(pool) << pool.error().reason;
    pool_ = std::move(*pool);
    ASSERT_EQ(pool_.groups.at(0).slot_bytes, kBlockBytes);
  }

  // Opens and admits. On failure nothing is admitted, and the test has failed.
  client::Admission begin(SequenceId id, const std::vector<Token>& prompt,
                          std::uint32_t max_new_tokens = 0, client::OpenOptions options = {}) {
    auto opened = client_->open(id, test_namespace(), prompt, options, in(seconds(20)));
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().reason);
    auto admission = client_->admit(id, max_new_tokens, in(seconds(20)));
    EXPECT_TRUE(admission) << (admission ? "" : admission.error().reason);
    return admission ? *admission : client::Admission();
  }

  // Checks the bytes of the blocks that were hit, and writes those of the others.
  void compute(const client::Admission& admission, const std::vector<Token>& prompt) {
    const std::size_t hit_blocks = admission.account.hits() / kBlockTokens;
    for (std::size_t block = 0; (block + 1) * kBlockTokens <= prompt.size(); ++block) {
      const auto bytes = block_bytes_of(std::span(prompt).first((block + 1) * kBlockTokens));
      std::byte* slot = slot_memory(admission.slots.at(block));
      if (block < hit_blocks) {
        EXPECT_EQ(std::memcmp(slot, bytes.data(), bytes.size()), 0) << "block " << block;
      } else {
        std::memcpy(slot, bytes.data(), bytes.size());
      }
    }
  }

  client::StepOutcome publish(SequenceId id, std::size_t tokens) {
    client::StepRequest request;
    request.publish = {{id, static_cast<std::uint32_t>(tokens)}};
    return step(request);
  }
  client::StepOutcome free(SequenceId id) {
    client::StepRequest request;
    request.free = {id};
    return step(request);
  }
  client::StepOutcome step(client::StepRequest& request) {
    request.step_seq = ++steps_;
    request.completed_step = steps_;
    auto outcome = client_->step(request, in(seconds(20)));
    EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().reason);
    if (!outcome) return {};
    for (const auto& failure : outcome->failures) {
      ADD_FAILURE() << "sequence " << failure.sequence.value << ": " << failure.error.reason;
    }
    return *outcome;
  }
  // A whole sequence: what was hit is checked, the rest computed and published. Returns the
  // account.
  client::Account run(SequenceId id, const std::vector<Token>& prompt) {
    const auto admission = begin(id, prompt);
    compute(admission, prompt);
    publish(id, prompt.size());
    const auto outcome = free(id);
    EXPECT_EQ(outcome.ended.size(), 1U);
    return outcome.ended.empty() ? client::Account() : outcome.ended[0].account;
  }

  [[nodiscard]] std::byte* slot_memory(SlotId slot) const {
    return pool_.memory.data() + pool_.groups[0].offset + slot.value * kBlockBytes;
  }
  [[nodiscard]] Client& client() const { return *client_; }
  void restart_steps() { steps_ = 0; }

 private:
  std::unique_ptr<Client> client_;
  client::Pool pool_;
  std::uint64_t steps_ = 0;
};

}  // namespace kv::test
