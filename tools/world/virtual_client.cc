#include "tools/world/virtual_client.h"

#include <algorithm>
#include <limits>
#include <variant>

#include "allocator/namespace.h"
#include "cachesvc/core/trace.h"

namespace kv::world {
namespace {

constexpr std::size_t kSentRequestsKept = 8;

}  // namespace

VirtualClient::VirtualClient(VirtualWorld& world, std::string tenant, core::ClientRole role)
    : world_(&world), id_(world.new_client()), tenant_(std::move(tenant)), role_(role) {
  world_->send(core::ClientAttached{id_, role, tenant_, id_.value});
  core::Hello hello;
  hello.protocol_version = 1;
  hello.name = "virtual";
  ask(hello);
}

void VirtualClient::problem(const std::string& text) {
  world_->problem("client " + std::to_string(id_.value) + ": " + text);
}

void VirtualClient::send(core::InputView request, Expect expect) {
  send(request, expect, Pending{});
}

void VirtualClient::send(core::InputView request, Expect expect, Pending pending) {
  const core::RequestHeader header{id_, RequestId{++last_request_}, last_notice_};
  std::visit(
      [&](auto& value) {
        if constexpr (requires { value.header; }) value.header = header;
      },
      request);
  pending.expect = expect;
  pending.name =
      "request " + std::to_string(last_request_) + " of kind " + std::to_string(request.index());
  pending.sent_at = world_->steps() + 1;
  pending_[header.request] = std::move(pending);
  sent_.emplace_back();
  core::append_record(TimePoint{}, request, sent_.back());
  if (sent_.size() > kSentRequestsKept) sent_.pop_front();
  world_->send(request);
  poll();
}

void VirtualClient::repeat(std::size_t n) {
  if (n >= sent_.size()) return;
  const auto bytes = sent_[sent_.size() - 1 - n];
  core::TraceReader reader(bytes);
  const auto record = reader.next();
  if (!record) {
    problem("its own request cannot be read again");
    return;
  }
  world_->send(record->input);
  poll();
}

NamespaceFields VirtualClient::fields_of(const std::string& weights) const {
  NamespaceFields fields;
  fields.weights = weights;
  fields.model_config = "virtual";
  fields.tenant = tenant_;
  fields.block_tokens = block_tokens();
  return fields;
}

Fingerprint VirtualClient::prefix(const Sequence& sequence, std::uint32_t count) {
  return extend(sequence.start, std::span(sequence.tokens).first(count));
}

std::uint64_t VirtualClient::expected_hit(Fingerprint start, std::span<const Token> tokens) const {
  if (tokens.empty()) return 0;
  const std::size_t blocks = (tokens.size() - 1) / block_tokens();
  for (std::size_t i = 0; i < blocks; ++i) {
    start = extend(start, tokens.subspan(i * block_tokens(), block_tokens()));
    if (world_->tiers().resident_tiers(start) == 0) return i * block_tokens();
  }
  return blocks * block_tokens();
}

void VirtualClient::attach_pool() {
  core::AttachPool request;
  request.layout = &world_->layout();
  ask(request);
}

void VirtualClient::open(SequenceId sequence, const std::string& weights,
                         std::span<const Token> tokens, std::size_t parts, bool skip_read,
                         bool accept_rewrite) {
  const NamespaceFields fields = fields_of(weights);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t count = part + 1 == parts ? tokens.size() : tokens.size() / parts;
    Pending pending;
    pending.kind = Kind::open;
    pending.sequence = sequence;
    pending.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    pending.first = part == 0;
    pending.opened.id = sequence;
    pending.opened.weights = weights;
    pending.opened.start = world_->tiers().epochs().start(namespace_digest(fields));
    pending.opened.skip_read = skip_read;
    core::Open request;
    request.sequence = sequence;
    request.first = part == 0;
    request.fields = part == 0 ? &fields : nullptr;
    request.tokens = tokens.first(count);
    request.skip_read = skip_read;
    request.accept_rewrite = accept_rewrite;
    tokens = tokens.subspan(count);
    send(request, Expect::anything, std::move(pending));
    if (!sequences_.contains(sequence)) return;
  }
}

void VirtualClient::admit(SequenceId sequence, std::uint32_t max_new_tokens) {
  Sequence& known = sequences_.at(sequence);
  known.admitting = true;
  Pending pending;
  pending.kind = Kind::admit;
  pending.sequence = sequence;
  pending.block_count = static_cast<std::uint32_t>(
      (known.tokens.size() + max_new_tokens + block_tokens() - 1) / block_tokens());
  pending.token_count = known.tokens.size() + max_new_tokens;
  pending.hit_expected = known.skip_read ? 0 : expected_hit(known.start, known.tokens);
  core::Admit request;
  request.sequence = sequence;
  request.max_new_tokens = max_new_tokens;
  send(request, Expect::anything, std::move(pending));
}

void VirtualClient::lookup(const std::string& weights, std::span<const Token> tokens) {
  const NamespaceFields fields = fields_of(weights);
  Pending pending;
  pending.kind = Kind::lookup;
  pending.tokens.assign(tokens.begin(), tokens.end());
  pending.hit_expected =
      expected_hit(world_->tiers().epochs().start(namespace_digest(fields)), tokens);
  core::Lookup request;
  request.fields = &fields;
  request.tokens = tokens;
  send(request, Expect::success, std::move(pending));
}

void VirtualClient::clear(const std::optional<std::string>& weights,
                          const std::optional<Tier>& tier) {
  NamespaceFields fields;
  if (weights) fields = fields_of(*weights);
  core::Clear request;
  request.all_tiers = !tier.has_value();
  request.tier = tier.value_or(Tier::device);
  request.fields = weights ? &fields : nullptr;
  send(request, role_ == core::ClientRole::admin ? Expect::anything : Expect::refusal);
}

void VirtualClient::set_epoch(const std::string& weights, std::uint64_t epoch) {
  const NamespaceFields fields = fields_of(weights);
  core::SetEpoch request;
  request.fields = &fields;
  request.epoch = epoch;
  send(request, role_ == core::ClientRole::admin ? Expect::anything : Expect::refusal);
}

std::uint32_t VirtualClient::compute(Sequence& sequence, std::uint32_t count) {
  const std::uint32_t unit = block_tokens();
  const auto table_tokens = static_cast<std::uint32_t>(sequence.tables[0].size()) * unit;
  const std::uint32_t end = std::min({sequence.computed + count, table_tokens,
                                      static_cast<std::uint32_t>(sequence.tokens.size())});
  if (!sequence.ready || end <= sequence.computed) return 0;
  const auto groups = static_cast<std::uint32_t>(sequence.tables.size());
  for (std::uint32_t block = 0; block * unit < end; ++block) {
    const bool is_new = (block + 1) * unit > sequence.computed;
    const Fingerprint bytes = prefix(sequence, std::min((block + 1) * unit, end));
    if (sequence.tables[0][block].is_none()) continue;  // dropped
    for (std::uint32_t g = 0; g < groups; ++g) {
      auto& accesses = is_new ? next_work_.writes : next_work_.reads;
      accesses.push_back({GroupId{g}, sequence.tables[g][block], of_group(bytes, GroupId{g})});
    }
  }
  const std::uint32_t done = end - sequence.computed;
  sequence.computed = end;
  sequence.was_cut = false;
  return done;
}

void VirtualClient::send_step(std::vector<Item> items) {
  next_work_.step = ++step_;
  work_.push_back(std::exchange(next_work_, {}));
  std::vector<core::StepItem> step_items;
  std::vector<Token> tokens;
  std::vector<SequenceId> children;
  for (const Item& item : items) {
    if (item.op == core::StepOp::fork) {
      const auto child = static_cast<std::uint32_t>(children.size());
      step_items.push_back({item.sequence, item.op, 0, item.value, child});
      children.push_back(item.child);
      continue;
    }
    if (item.op == core::StepOp::drop) {
      step_items.push_back(
          {item.sequence, item.op, item.value * block_tokens(), block_tokens(), 0});
      continue;
    }
    step_items.push_back({item.sequence, item.op, static_cast<std::uint32_t>(tokens.size()),
                          static_cast<std::uint32_t>(item.tokens.size()), item.value});
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
  }
  core::Step request;
  request.step_seq = step_;
  request.completed_step = completed_;
  request.items = step_items;
  request.tokens = tokens;
  request.children = children;
  Pending pending;
  pending.kind = Kind::step;
  pending.items = std::move(items);
  step_waits_ = true;
  send(request, Expect::success, std::move(pending));
}

void VirtualClient::execute(const Work& work, std::uint64_t& writes_left) {
  VirtualTiers& tiers = world_->tiers();
  for (const Copy& copy : work.copies) {
    if (writes_left == 0) return;
    --writes_left;
    const Fingerprint bytes = tiers.read(Tier::device, copy.group, copy.from);
    if (!expired_ && !gone_ && copy.fingerprint && bytes != *copy.fingerprint) {
      problem("12: step " + std::to_string(work.step) + " copies other bytes from device slot " +
              std::to_string(copy.from.value));
    }
    tiers.write(Tier::device, copy.group, copy.to, bytes);
  }
  for (const Access& read : work.reads) {
    if (expired_ || gone_) break;
    if (tiers.read(Tier::device, read.group, read.slot) != read.fingerprint) {
      problem("12: step " + std::to_string(work.step) + " read other bytes in device slot " +
              std::to_string(read.slot.value));
    }
  }
  for (const Access& write : work.writes) {
    if (writes_left == 0) return;
    --writes_left;
    tiers.write(Tier::device, write.group, write.slot, write.fingerprint);
  }
}

void VirtualClient::complete_steps(std::uint64_t count) {
  std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  for (; count > 0 && !work_.empty(); --count) {
    execute(work_.front(), unlimited);
    completed_ = work_.front().step;
    work_.pop_front();
  }
}

void VirtualClient::bye() {
  complete_steps(work_.size());
  Pending pending;
  pending.kind = Kind::bye;
  send(core::Bye{}, Expect::success, std::move(pending));
}

void VirtualClient::die(std::uint64_t writes_done_max) {
  gone_ = true;
  for (const Work& work : work_) execute(work, writes_done_max);
  work_.clear();
  world_->forget_client(id_);
  pending_.clear();
  sequences_.clear();
  world_->send(core::ClientGone{id_});
}

void VirtualClient::expire() {
  expired_ = true;
  step_waits_ = false;
  sequences_.clear();
}

}  // namespace kv::world
