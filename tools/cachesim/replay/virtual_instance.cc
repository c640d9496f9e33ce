#include "tools/cachesim/replay/virtual_instance.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "allocator/base/check.h"
#include "allocator/namespace.h"

namespace kv::cachesim {
namespace {

constexpr ClientId kClient{1};
// No block of a trace has this number; never published, so that it is never matched.
constexpr Token kOwnToken = 0xFFFFFFFFU;

NamespaceFields fields() { return {.weights = "trace", .model_config = "trace"}; }

}  // namespace

VirtualInstance::VirtualInstance(const InstanceOptions& options, const Trace& trace,
                                 const ComputeModel& compute, VirtualService& service,
                                 std::span<RequestResult> results)
    : options_(options), trace_(&trace), compute_(&compute), service_(&service), results_(results) {
  running_.reserve(options.sequences_max);
  service_->send(TimePoint{}, core::ClientAttached{kClient, core::ClientRole::runner, {}, 1});
  core::Hello hello;
  hello.protocol_version = core::kProtocolVersion;
  hello.name = "replay";
  ask(TimePoint{}, hello);
  core::AttachPool attach;
  attach.layout = &service_->layout();
  ask(TimePoint{}, attach);
  take_answers(TimePoint{});
}

template <class Request>
RequestId VirtualInstance::ask(TimePoint now, Request request) {
  request.header = {kClient, RequestId{++last_request_}, last_notice_};
  service_->send(now, request);
  return request.header.request;
}

// ---------------------------------------------------------------- sizes

std::uint32_t VirtualInstance::blocks_of(std::uint64_t tokens) const {
  return static_cast<std::uint32_t>((tokens + trace_->block_tokens - 1) / trace_->block_tokens);
}

std::uint32_t VirtualInstance::prompt_blocks(const TraceRequest& request) const {
  if (!options_.counts_only) return request.block_count;
  return std::min(request.block_count, options_.device_slots - 1);
}

// Blocks of the trace that are computed to their end; the last one may be a part of a block.
std::uint32_t VirtualInstance::computed_blocks(const Sequence& sequence) const {
  if (sequence.position >= sequence.prompt_tokens) return sequence.block_count;
  return std::min(sequence.block_count,
                  static_cast<std::uint32_t>(sequence.position / trace_->block_tokens));
}

// ---------------------------------------------------------------- requests

void VirtualInstance::arrive(TimePoint now, std::uint32_t request) {
  results_[request].arrival = now;
  waiting_.push_back({request, false});
  prompt_tokens_left_ += trace_->requests[request].input_tokens;
}

void VirtualInstance::open(TimePoint now, std::uint32_t request) {
  const TraceRequest& wanted = trace_->requests[request];
  trace_->expand(wanted, tokens_);
  tokens_.resize(prompt_blocks(wanted));
  tokens_.push_back(kOwnToken);
  const NamespaceFields where = fields();
  std::span<const Token> left = tokens_;
  while (!left.empty()) {
    core::Open part;
    part.sequence = SequenceId(request);
    part.first = left.size() == tokens_.size();
    part.fields = part.first ? &where : nullptr;
    part.tokens = left.first(std::min<std::size_t>(left.size(), core::kTokensPerMessageMax));
    left = left.subspan(part.tokens.size());
    ask(now, part);
  }
}

std::uint64_t VirtualInstance::uncached_tokens(TimePoint now, std::uint32_t request) {
  const TraceRequest& wanted = trace_->requests[request];
  trace_->expand(wanted, tokens_);
  tokens_.push_back(kOwnToken);
  tokens_.resize(std::min<std::size_t>(tokens_.size(), core::kTokensPerMessageMax));
  const NamespaceFields where = fields();
  core::Lookup look_up;
  look_up.fields = &where;
  look_up.tokens = tokens_;
  ask(now, look_up);
  take_answers(now);
  const auto hit = static_cast<std::uint32_t>(looked_up_blocks_);
  return wanted.input_tokens - trace_->tokens_of(wanted, hit);
}

// First come, first served: nobody overtakes one that waits for room.
void VirtualInstance::admit(TimePoint now) {
  if (service_->transfers_ended() != transfers_seen_) {
    transfers_seen_ = service_->transfers_ended();
    no_room_ = false;
  }
  while (!no_room_ && !waiting_.empty() && running_.size() < options_.sequences_max) {
    const auto [request, opened] = waiting_.front();
    waiting_.pop_front();
    if (!opened) open(now, request);
    const TraceRequest& wanted = trace_->requests[request];
    Sequence sequence;
    sequence.request = request;
    sequence.block_count = prompt_blocks(wanted);
    sequence.prompt_tokens = wanted.input_tokens;
    sequence.output_tokens = options_.counts_only ? 0 : wanted.output_tokens;
    sequence.admit_request = RequestId{last_request_ + 1};
    core::Admit ask_for;
    ask_for.sequence = SequenceId(request);
    const std::uint32_t whole =
        options_.counts_only ? 0 : blocks_of(sequence.prompt_tokens + sequence.output_tokens);
    ask_for.max_new_tokens =
        whole > sequence.block_count + 1 ? whole - sequence.block_count - 1 : 0;
    running_.push_back(sequence);
    ask(now, ask_for);
    take_answers(now);
  }
}

// ---------------------------------------------------------------- what the service says

void VirtualInstance::take_answers(TimePoint now) {
  while (service_->has_answers()) {
    VirtualService::Answers answers = std::exchange(answers_, {});
    service_->take_answers(answers);
    for (const core::Reply& reply : answers.replies) on_reply(now, reply);
    for (const core::Notice& notice : answers.notices) {
      KV_CHECK(notice.kind == core::NoticeKind::sequence_ready);
      last_notice_ = notice.number;
      on_ready(now, notice.sequence, notice.code == ErrorCode::ok);
    }
    answers_ = std::move(answers);
  }
}

VirtualInstance::Sequence* VirtualInstance::find(std::uint32_t request) {
  const auto found = std::ranges::find(running_, request, &Sequence::request);
  return found == running_.end() ? nullptr : &*found;
}

void VirtualInstance::on_reply(TimePoint now, const core::Reply& reply) {
  if (const auto* admitted = std::get_if<core::AdmitReply>(&reply.body)) {
    const auto found = std::ranges::find(running_, reply.request, &Sequence::admit_request);
    KV_CHECK(found != running_.end());
    on_admitted(now, *found, *admitted);
    return;
  }
  if (const auto* step = std::get_if<core::StepReply>(&reply.body)) {
    KV_CHECK(step->failures.empty());
    for (const core::TableDelta& delta : step->deltas) {
      Sequence* sequence = find(static_cast<std::uint32_t>(delta.sequence.value));
      if (sequence != nullptr) sequence->table_version = delta.version;
    }
    return;
  }
  if (const auto* found = std::get_if<core::LookupReply>(&reply.body)) {
    looked_up_blocks_ = found->hit_tokens;
    return;
  }
  if (reply.error.code == ErrorCode::ok) return;
  const auto found = std::ranges::find(running_, reply.request, &Sequence::admit_request);
  KV_CHECK(found != running_.end());
  on_not_admitted(now, static_cast<std::size_t>(found - running_.begin()), reply);
}

void VirtualInstance::on_admitted(TimePoint now, Sequence& sequence,
                                  const core::AdmitReply& reply) {
  const TraceRequest& request = trace_->requests[sequence.request];
  RequestResult& result = results_[sequence.request];
  result.admitted = now;
  // One token of the Engine is a block here.
  std::uint64_t blocks = 0;
  for (std::size_t t = 0; t < kTiers; ++t) {
    const std::uint64_t of_tier = reply.account.hit_tokens[t];
    const std::uint64_t before = trace_->tokens_of(request, static_cast<std::uint32_t>(blocks));
    blocks += of_tier;
    // Copies of a tier reach from the root on, so that faster tiers' hits lie in front.
    result.hit_tokens[t] = trace_->tokens_of(request, static_cast<std::uint32_t>(blocks)) - before;
  }
  result.hit_blocks = static_cast<std::uint32_t>(blocks);
  std::uint64_t hit = trace_->tokens_of(request, result.hit_blocks);
  if (!options_.counts_only && hit > 0 && hit == sequence.prompt_tokens) {
    for (std::size_t t = kTiers; t > 0; --t) {
      if (result.hit_tokens[t - 1] == 0) continue;
      --result.hit_tokens[t - 1];
      break;
    }
    --hit;
  }
  prompt_tokens_left_ -= hit;
  sequence.position = hit;
  sequence.published_blocks = result.hit_blocks;
  sequence.phase = Phase::loading;
  if (reply.ready) on_ready(now, SequenceId(sequence.request), true);
}

void VirtualInstance::on_not_admitted(TimePoint now, std::size_t index, const core::Reply& reply) {
  const std::uint32_t request = running_[index].request;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  if (reply.error.code == ErrorCode::exhausted) {
    // In its place again: requests are numbered in the order of arrival.
    waiting_.insert(std::ranges::lower_bound(waiting_, request, {}, &Waiting::request),
                    {request, true});
    no_room_ = true;
    return;
  }
  KV_CHECK(reply.error.code == ErrorCode::too_large);
  results_[request].refused = true;
  prompt_tokens_left_ -= trace_->requests[request].input_tokens;
  results_[request].end = now;
  ++finished_;
  items_.push_back({SequenceId(request), core::StepOp::free, 0, 0, 0});
  send_step(now);
}

void VirtualInstance::on_ready(TimePoint now, SequenceId id, bool ok) {
  Sequence* sequence = find(static_cast<std::uint32_t>(id.value));
  KV_CHECK(sequence != nullptr && ok);  // no transfer fails here
  sequence->phase = Phase::prefill;
  results_[sequence->request].ready = now;
}

// ---------------------------------------------------------------- steps

void VirtualInstance::advance(TimePoint now) {
  take_answers(now);
  if (step_end_ <= now) end_step(now);
  if (step_end_ == kNever) begin_step(now);
}

void VirtualInstance::begin_step(TimePoint now) {
  admit(now);
  std::uint64_t rows = 0;
  std::uint64_t attention_ns = 0;
  std::uint64_t decode_context = 0;
  bool any = false;
  for (Sequence& sequence : running_) {
    sequence.in_step = sequence.phase == Phase::decode && rows < options_.step_tokens_max;
    if (!sequence.in_step) continue;
    sequence.step_tokens = 1;
    decode_context += sequence.position;
    ++rows;
    any = true;
  }
  for (Sequence& sequence : running_) {
    if (sequence.phase != Phase::prefill) continue;
    const std::uint64_t left = sequence.prompt_tokens - sequence.position;
    sequence.step_tokens = std::min(left, options_.step_tokens_max - rows);
    if (sequence.step_tokens == 0 && left > 0) break;
    sequence.in_step = true;
    any = true;
    rows += sequence.step_tokens;
    attention_ns +=
        compute_->attention_ns(sequence.position, sequence.position + sequence.step_tokens);
  }
  if (!any) return;
  const Duration time = compute_->step_time(rows, attention_ns, decode_context);
  computing_ += time;
  step_end_ = now + time;
}

void VirtualInstance::end_step(TimePoint now) {
  step_end_ = kNever;
  for (Sequence& sequence : running_) {
    if (sequence.in_step) sequence.done = progress(now, sequence);
    sequence.in_step = false;
  }
  finished_ += std::erase_if(running_, [](const Sequence& sequence) { return sequence.done; });
  send_step(now);
  take_answers(now);
}

// True: the request has all its tokens.
bool VirtualInstance::progress(TimePoint now, Sequence& sequence) {
  const SequenceId id(sequence.request);
  RequestResult& result = results_[sequence.request];
  const bool prefill = sequence.phase == Phase::prefill;
  sequence.position += sequence.step_tokens;
  if (prefill) {
    result.computed_tokens += sequence.step_tokens;
    prompt_tokens_left_ -= sequence.step_tokens;
  }
  if (sequence.table_version > 0) {
    items_.push_back({id, core::StepOp::acknowledge, 0, 0, sequence.table_version});
    sequence.table_version = 0;
    no_room_ = false;
  }
  if (const std::uint32_t blocks = computed_blocks(sequence);
      prefill && blocks > sequence.published_blocks) {
    items_.push_back({id, core::StepOp::publish, 0, 0, blocks});
    sequence.published_blocks = blocks;
  }
  if (prefill && sequence.position < sequence.prompt_tokens) return false;
  if (prefill) {
    sequence.phase = Phase::decode;
    result.first_token = now;
  }
  ++sequence.emitted;
  const std::uint32_t own = sequence.block_count + 1 + sequence.appended_blocks;
  if (!options_.counts_only && blocks_of(sequence.position) > own) {
    items_.push_back({id, core::StepOp::append, 0, 1, 0});
    ++sequence.appended_blocks;
  }
  if (sequence.emitted < sequence.output_tokens) return false;
  result.end = now;
  items_.push_back({id, core::StepOp::free, 0, 0, 0});
  no_room_ = false;
  return true;
}

void VirtualInstance::send_step(TimePoint now) {
  ++step_seq_;
  for (std::size_t first = 0; first < items_.size(); first += core::kStepItemsMax) {
    core::Step step;
    step.step_seq = step_seq_;
    step.completed_step = step_seq_;
    tokens_.assign(1, kOwnToken);
    step.tokens = tokens_;
    step.items = std::span(items_).subspan(
        first, std::min<std::size_t>(items_.size() - first, core::kStepItemsMax));
    ask(now, step);
    if (first + core::kStepItemsMax < items_.size()) ++step_seq_;
  }
  items_.clear();
}

}  // namespace kv::cachesim
