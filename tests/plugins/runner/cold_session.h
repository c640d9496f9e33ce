// ColdSession: a Session without a cache: every admission takes fresh slots, everything is
// computed. An oracle that shares no code with the service. Slots come in a seeded random order.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "allocator/base/prng.h"
#include "plugins/client/session.h"

namespace kv::test {

class ColdSession : public client::Session {
 public:
  explicit ColdSession(std::uint32_t slot_count, std::uint64_t slot_order_seed = 0)
      : slot_count_(slot_count), seed_(slot_order_seed) {}

  Result<client::Pool> attach_pool(const KvLayout& layout, client::Deadline /*deadline*/) override {
    block_tokens_ = layout.block_tokens;
    const std::uint64_t slot_bytes = block_bytes(layout, GroupId(0));
    memory_.assign(slot_bytes * slot_count_, std::byte{0xFF});  // NaN: a stray read shows
    free_.clear();
    for (std::uint32_t slot = slot_count_; slot > 0; --slot) free_.emplace_back(slot - 1);
    Prng prng(seed_);
    for (std::size_t i = free_.size(); seed_ != 0 && i > 1; --i) {
      std::swap(free_[i - 1], free_[prng.below(i)]);
    }
    return client::Pool{
        .memory = memory_,
        .groups = {{.offset = 0, .slot_bytes = slot_bytes, .slot_count = slot_count_}}};
  }

  Result<void> open(SequenceId sequence, const NamespaceFields& /*fields*/,
                    std::span<const Token> tokens, const client::OpenOptions& /*options*/,
                    client::Deadline /*deadline*/) override {
    if (sequences_.contains(sequence)) return Error{ErrorCode::exists, "sequence", {}};
    sequences_[sequence].account.prompt_tokens = tokens.size();
    sequences_[sequence].account.computed_tokens = tokens.size();
    return {};
  }

  Result<client::Admission> admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                  client::Deadline /*deadline*/) override {
    if (!sequences_.contains(sequence)) return Error{ErrorCode::not_found, "sequence", {}};
    Held& held = sequences_[sequence];
    const std::uint64_t tokens = held.account.prompt_tokens + max_new_tokens;
    const std::uint64_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
    if (blocks > slot_count_) return Error{ErrorCode::too_large, "pool", {}};
    if (blocks > free_.size()) return Error{ErrorCode::exhausted, "pool", {}};
    for (std::uint64_t i = 0; i < blocks; ++i) {
      held.slots.push_back(free_.back());
      free_.pop_back();
    }
    return client::Admission{.account = held.account,
                             .table_version = 1,
                             .block_count = static_cast<std::uint32_t>(blocks),
                             .slots = held.slots};
  }

  Result<client::StepOutcome> step(const client::StepRequest& request,
                                   client::Deadline /*deadline*/) override {
    ++step_count_;
    client::StepOutcome outcome;
    for (const auto& append : request.append) {
      sequences_.at(append.sequence).account.generated_tokens += append.tokens.size();
    }
    for (const auto& publish : request.publish) {
      published_[publish.sequence] = publish.computed_tokens;
    }
    for (const SequenceId id : request.free) {
      const auto found = sequences_.find(id);
      if (found == sequences_.end()) {
        outcome.failures.push_back({id, {ErrorCode::not_found, "sequence", {}}});
        continue;
      }
      free_.insert(free_.end(), found->second.slots.begin(), found->second.slots.end());
      outcome.ended.push_back({id, found->second.account});
      sequences_.erase(found);
    }
    return outcome;
  }

  [[nodiscard]] std::uint64_t step_count() const { return step_count_; }
  [[nodiscard]] std::size_t sequence_count() const { return sequences_.size(); }
  [[nodiscard]] std::size_t free_count() const { return free_.size(); }
  [[nodiscard]] const std::map<SequenceId, std::uint32_t>& published() const { return published_; }

 private:
  struct Held {
    client::Account account;
    std::vector<SlotId> slots;
  };
  std::uint32_t slot_count_;
  std::uint64_t seed_;
  std::uint32_t block_tokens_ = 0;
  std::uint64_t step_count_ = 0;
  std::vector<std::byte> memory_;
  std::vector<SlotId> free_;
  std::map<SequenceId, Held> sequences_;
  std::map<SequenceId, std::uint32_t> published_;
};

}  // namespace kv::test
