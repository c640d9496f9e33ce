#include "tests/chaos/load_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <poll.h>

#include "allocator/base/prng.h"

namespace kv::test {

using client::in;

LoadClient::LoadClient(Options options) : options_(std::move(options)) {}
LoadClient::~LoadClient() = default;

// `call` gets the deadline that it is measured against.
template <class Call>
auto LoadClient::timed(Call call) {
  using std::chrono::milliseconds;
  const client::Deadline deadline = in(options_.call_time);
  auto result = call(deadline);
  ++counts_.calls;
  const auto over = std::chrono::steady_clock::now() - deadline;
  counts_.worst_overrun =
      std::max(counts_.worst_overrun, std::chrono::duration_cast<milliseconds>(over));
  return result;
}

Result<void> LoadClient::attach() {
  steps_ = 0;
  if (client_ == nullptr) {
    KV_TRY(client_, timed([this](client::Deadline deadline) {
             client::Client::Options options;
             options.dir = options_.dir;
             options.name = options_.name;
             options.role = client::Client::Role::admin;
             options.deadline = deadline;
             return client::Client::connect(options);
           }));
  } else {
    KV_TRY_VOID(timed([this](client::Deadline deadline) { return client_->reattach(deadline); }));
  }
  KV_TRY(pool_, timed([this](client::Deadline deadline) {
           return client_->attach_pool(options_.layout, deadline);
         }));
  return {};
}

std::span<std::byte> LoadClient::slot(SlotId slot) const {
  const auto& group = pool_.groups.at(0);
  return pool_.memory.subspan(group.offset + slot.value * group.slot_bytes, group.slot_bytes);
}

std::vector<std::byte> LoadClient::bytes_of(std::span<const Token> prefix) const {
  std::uint64_t seed = 23;
  for (const Token token : prefix) seed = seed * 1'099'511'628'211U + token;
  Prng prng(seed);
  std::vector<std::byte> bytes(pool_.groups.at(0).slot_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = prng.next();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
  }
  return bytes;
}

Result<client::Admission> LoadClient::begin(SequenceId id, std::span<const Token> prompt,
                                            bool skip_read) {
  client::OpenOptions open;
  open.skip_read = skip_read;
  KV_TRY_VOID(timed([&](client::Deadline deadline) {
    return client_->open(id, options_.fields, prompt, open, deadline);
  }));
  return timed([&](client::Deadline deadline) { return client_->admit(id, 0, deadline); });
}

void LoadClient::compute(const client::Admission& admission, std::span<const Token> prompt) {
  const std::size_t block_tokens = options_.layout.block_tokens;
  const std::size_t hit_blocks = admission.account.hits() / block_tokens;
  for (std::size_t block = 0; (block + 1) * block_tokens <= prompt.size(); ++block) {
    const auto bytes = bytes_of(prompt.first((block + 1) * block_tokens));
    const auto memory = slot(admission.slots.at(block));
    if (block >= hit_blocks) {
      std::memcpy(memory.data(), bytes.data(), bytes.size());
    } else if (std::memcmp(memory.data(), bytes.data(), bytes.size()) == 0) {
      ++counts_.right_blocks;
    } else {
      ++counts_.wrong_blocks;
    }
  }
}

Result<client::Account> LoadClient::finish(SequenceId id, std::size_t tokens) {
  client::StepRequest request;
  request.step_seq = ++steps_;
  request.completed_step = steps_;
  request.publish = {{id, static_cast<std::uint32_t>(tokens)}};
  request.free = {id};
  KV_TRY(const auto outcome,
         timed([&](client::Deadline deadline) { return client_->step(request, deadline); }));
  if (!outcome.failures.empty()) return outcome.failures.front().error;
  if (outcome.ended.size() != 1) return Error{ErrorCode::corrupt, "no account came", {}};
  return outcome.ended.front().account;
}

Result<void> LoadClient::free(std::span<const SequenceId> ids) {
  client::StepRequest request;
  request.step_seq = ++steps_;
  request.completed_step = steps_;
  request.free.assign(ids.begin(), ids.end());
  KV_TRY(const auto outcome,
         timed([&](client::Deadline deadline) { return client_->step(request, deadline); }));
  if (!outcome.failures.empty()) return outcome.failures.front().error;
  return {};
}

Result<client::Account> LoadClient::run(std::span<const Token> prompt) {
  const SequenceId id(++sequences_);
  auto admission = begin(id, prompt);
  const client::Deadline patience = in(options_.call_time);
  while (!admission && admission.error().code == ErrorCode::exhausted &&
         std::chrono::steady_clock::now() < patience) {
    (void)poll(nullptr, 0, 1);  // others' slots come back in their own time
    admission = timed([&](client::Deadline deadline) { return client_->admit(id, 0, deadline); });
  }
  if (!admission) return admission.error();
  compute(*admission, prompt);
  return finish(id, prompt.size());
}

Result<client::FlushOutcome> LoadClient::flush() {
  return timed([this](client::Deadline deadline) { return client_->flush(deadline); });
}
Result<client::ServiceStatus> LoadClient::status() {
  return timed([this](client::Deadline deadline) { return client_->status(deadline); });
}
Result<client::LookupHits> LoadClient::lookup(std::span<const Token> prompt) {
  return timed([&](client::Deadline deadline) {
    return client_->lookup(options_.fields, prompt, deadline);
  });
}

}  // namespace kv::test
