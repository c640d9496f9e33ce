#include "plugins/runner/generator.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

namespace kv::runner {
namespace {

bool loses_service(ErrorCode code) {
  return code == ErrorCode::stale || code == ErrorCode::unavailable || code == ErrorCode::deadline;
}

double milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

// One request, from add() to its end. Positions below `computed` hold KV.
struct Generator::Sequence {
  SequenceId id;
  GenerateRequest request;
  Generated result;
  std::vector<Token> tokens;  // the prompt, then what was sampled
  std::vector<SlotId> table;
  std::uint32_t computed = 0;
  std::uint32_t appended = 0;   // tokens that the service knows
  std::uint32_t published = 0;  // positions last told
  std::uint32_t table_version = 0;
  std::uint32_t acknowledged = 0;
  bool opened = false;
  bool ended = false;     // nothing more to compute
  bool reported = false;  // its result was handed over
  Clock::time_point added, first_token, admit_deadline;

  [[nodiscard]] bool in_prefill() const { return computed < request.prompt.size(); }
};

Generator::~Generator() = default;

Result<std::unique_ptr<Generator>> Generator::make(const Model& model, const Tokenizer& tokenizer,
                                                   const kv_kernel& kernel, GemmBackend backend,
                                                   client::Session& session,
                                                   const Options& options) {
  if (options.chunk_tokens == 0) return Error{ErrorCode::invalid, "chunk: zero", "chunk_tokens"};
  if (options.running_max == 0) return Error{ErrorCode::invalid, "running: zero", "running_max"};
  if (tokenizer.size() != model.config().vocab_size) {
    return Error{ErrorCode::mismatch, "tokenizer: made for another vocabulary", "vocab_size"};
  }
  const KvLayout layout = kv_layout(model.config(), options.block_tokens);
  KV_TRY_VOID(validate(layout));
  KV_TRY(const client::Pool pool, session.attach_pool(layout, client::in(options.call_timeout)));
  KV_TRY(Decoder decoder, Decoder::make(model, kernel, backend, layout, pool));
  return std::unique_ptr<Generator>(new Generator(
      model, tokenizer, session, options, model_identity(model, backend), std::move(decoder)));
}

Generator::Generator(const Model& model, const Tokenizer& tokenizer, client::Session& session,
                     const Options& options, ModelIdentity identity, Decoder decoder)
    : model_(&model),
      tokenizer_(&tokenizer),
      session_(&session),
      options_(options),
      layout_(kv_layout(model.config(), options.block_tokens)),
      identity_(std::move(identity)),
      decoder_(std::move(decoder)) {}

Result<std::uint32_t> Generator::add(GenerateRequest request) {
  const ModelConfig& config = model_->config();
  if (request.prompt.empty() || request.max_tokens == 0) {
    return Error{ErrorCode::invalid, "request: no prompt or no token wanted", "prompt"};
  }
  // The last generated token is never computed: it may lie just behind the context.
  if (request.prompt.size() + std::uint64_t{request.max_tokens} >
      std::uint64_t{config.context_length} + 1) {
    return Error{ErrorCode::invalid, "request: longer than the model's context", "max_tokens"};
  }
  if (std::ranges::any_of(request.prompt,
                          [&](Token token) { return token >= config.vocab_size; })) {
    return Error{ErrorCode::invalid, "request: a token outside the vocabulary", "prompt"};
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->added = Clock::now();
  sequence->id = SequenceId(next_request_ + 1);
  sequence->result.request = next_request_;
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  waiting_.push_back(std::move(sequence));
  return next_request_++;
}

Result<bool> Generator::step() {
  KV_TRY_VOID(admit_waiting());
  if (running_.empty() && abandoned_.empty()) return !waiting_.empty();
  KV_TRY_VOID(forward());
  KV_TRY_VOID(report());
  return !running_.empty() || !waiting_.empty() || !abandoned_.empty();
}

Result<std::vector<Generated>> Generator::run() {
  for (bool more = true; more;) {
    KV_TRY(more, step());
  }
  std::vector<Generated> results = take_results();
  std::ranges::sort(results, {}, &Generated::request);
  return results;
}

std::vector<Generated> Generator::take_results() { return std::exchange(results_, {}); }

// In order: a request that must wait for memory holds back the ones behind it, so that it is not
// starved.
Result<void> Generator::admit_waiting() {
  while (!waiting_.empty() && running_.size() < options_.running_max) {
    Sequence& sequence = *waiting_.front();
    const bool lost = session_error_.code != ErrorCode::ok;
    const auto admitted = lost ? Result<bool>(session_error_) : admit_one(sequence);
    if (!admitted) {
      fail(sequence, admitted.error());
      abandoned_.push_back(sequence.id);  // after a failed open a part of it may be there
      waiting_.pop_front();
      continue;
    }
    if (!*admitted) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return {};
}

// False: no memory now, try again after the next step.
Result<bool> Generator::admit_one(Sequence& sequence) {
  if (!sequence.opened) {
    client::OpenOptions open;
    open.skip_read = sequence.request.skip_read;
    KV_TRY_VOID(session_->open(sequence.id, identity_.fields(options_.block_tokens),
                               sequence.request.prompt, open, client::in(options_.call_timeout)));
    sequence.opened = true;
    sequence.appended = static_cast<std::uint32_t>(sequence.tokens.size());
    sequence.admit_deadline = Clock::now() + options_.admit_timeout;
  }
  auto admission =
      session_->admit(sequence.id, sequence.request.max_tokens, client::in(options_.call_timeout));
  if (!admission) {
    const bool wait =
        admission.error().code == ErrorCode::exhausted && Clock::now() < sequence.admit_deadline;
    if (!wait) return admission.error();
    // Another program holds the memory: there is no message to wait for, so ask again soon.
    if (running_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return false;
  }
  const std::uint64_t hits = admission->account.hits();
  const std::uint64_t positions = sequence.tokens.size() + sequence.request.max_tokens - 1;
  if (hits >= sequence.tokens.size() || hits % options_.block_tokens != 0 ||
      admission->slots.size() * options_.block_tokens < positions) {
    return Error{ErrorCode::corrupt, "admission: hits or slots that cannot be", {}};
  }
  sequence.result.account = admission->account;
  sequence.table = std::move(admission->slots);
  sequence.table_version = admission->table_version;
  sequence.acknowledged = admission->table_version;
  sequence.computed = static_cast<std::uint32_t>(hits);
  sequence.published = sequence.computed;
  return true;
}

// One pass: a chunk of every prompt under way, one token of every sequence that decodes.
Result<void> Generator::forward() {
  std::vector<DecoderRows> batch;
  for (const auto& sequence : running_) {
    const auto known = static_cast<std::uint32_t>(sequence->tokens.size());
    const std::uint32_t count = std::min(known - sequence->computed, options_.chunk_tokens);
    batch.push_back({.table = sequence->table,
                     .position = sequence->computed,
                     .tokens = std::span(sequence->tokens).subspan(sequence->computed, count),
                     .wants_logits = sequence->computed + count == known});
  }
  KV_TRY_VOID(decoder_.forward(batch, logits_));
  std::size_t row = 0;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    const auto count = static_cast<std::uint32_t>(batch[i].tokens.size());
    if (sequence.in_prefill()) sequence.result.computed_tokens += count;
    sequence.computed += count;
    if (batch[i].wants_logits) take_logits(row++, sequence);
  }
  return {};
}

// Samples the next token of a sequence whose known tokens are all computed.
void Generator::take_logits(std::size_t row, Sequence& sequence) {
  const std::size_t vocab = model_->config().vocab_size;
  const auto logits = std::span<const float>(logits_).subspan(row * vocab, vocab);
  const bool first = sequence.result.tokens.empty();
  if (first) sequence.first_token = Clock::now();
  const KeepLogits keep = sequence.request.keep_logits;
  if (keep == KeepLogits::all || (keep == KeepLogits::first && first)) {
    sequence.result.logits.insert(sequence.result.logits.end(), logits.begin(), logits.end());
  }
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    sequence.result.error = {ErrorCode::corrupt, "the model gives no numbers", "weights"};
    sequence.ended = true;
    return;
  }
  const Token token = argmax(logits);
  if (token == kBeginOfText || token == kEndOfText) {
    sequence.ended = true;
    return;
  }
  sequence.result.tokens.push_back(token);
  sequence.tokens.push_back(token);
  sequence.ended = sequence.result.tokens.size() == sequence.request.max_tokens;
}

// Tells the service what this step computed and sampled, in one message.
Result<void> Generator::report() {
  if (session_error_.code != ErrorCode::ok) {
    ++step_seq_;
    go_on_alone();
    return {};
  }
  client::StepRequest request;
  request.step_seq = ++step_seq_;
  request.completed_step = step_seq_;  // a CPU pass is complete when it returns
  for (const auto& sequence : running_) {
    if (sequence->table_version != sequence->acknowledged) {
      request.acknowledge.push_back({sequence->id, sequence->table_version});
      sequence->acknowledged = sequence->table_version;
    }
    const auto known = static_cast<std::uint32_t>(sequence->tokens.size());
    if (sequence->appended < known) {
      const auto fresh = sequence->tokens.begin() + sequence->appended;
      request.append.push_back({sequence->id, {fresh, sequence->tokens.end()}});
      sequence->appended = known;
    }
    const bool full_block =
        sequence->computed / options_.block_tokens != sequence->published / options_.block_tokens;
    if (full_block) {
      request.publish.push_back({sequence->id, sequence->computed});
      sequence->published = sequence->computed;
    }
    if (sequence->ended) request.free.push_back(sequence->id);
  }
  request.free.insert(request.free.end(), abandoned_.begin(), abandoned_.end());
  abandoned_.clear();
  const auto outcome = session_->step(request, client::in(options_.call_timeout));
  if (!outcome && !loses_service(outcome.error().code)) return outcome.error();
  if (!outcome) {
    session_error_ = outcome.error();
    go_on_alone();
    return {};
  }
  apply(*outcome);
  return {};
}

void Generator::apply(const client::StepOutcome& outcome) {
  for (const auto& failure : outcome.failures) {
    Sequence* sequence = find(failure.sequence);
    if (sequence != nullptr && !sequence->ended) abandon(*sequence, failure.error);
  }
  for (const auto& delta : outcome.deltas) {
    Sequence* sequence = find(delta.sequence);
    if (sequence == nullptr || sequence->ended) continue;
    const std::size_t end = std::size_t{delta.first_block} + delta.slots.size();
    if (end > model_->config().context_length / options_.block_tokens + 2) {
      abandon(*sequence, {ErrorCode::corrupt, "table delta: a block beyond the context", {}});
      continue;
    }
    if (sequence->table.size() < end) sequence->table.resize(end);
    std::ranges::copy(delta.slots, sequence->table.begin() + delta.first_block);
    sequence->table_version = std::max(sequence->table_version, delta.version);
  }
  for (const auto& ended : outcome.ended) {
    Sequence* sequence = find(ended.sequence);
    if (sequence != nullptr && !sequence->reported) finish(*sequence, ended.account);
  }
  for (const auto& sequence : running_) {
    if (!sequence->ended || sequence->reported) continue;
    fail(*sequence, {ErrorCode::corrupt, "step: the end of a sequence was not answered", {}});
  }
  std::erase_if(running_, [](const auto& sequence) { return sequence->ended; });
}

// What others may have written over ends here: its text could be anything.
void Generator::go_on_alone() {
  if (session_->held_its_blocks()) return finish_alone();
  abandoned_.clear();
  for (const auto& sequence : running_) {
    if (!sequence->reported) fail(*sequence, session_error_);
  }
  running_.clear();
}

// Without the service: hits are those of the admission, the rest is counted here.
void Generator::finish_alone() {
  abandoned_.clear();
  for (const auto& sequence : running_) {
    if (!sequence->ended || sequence->reported) continue;
    client::Account account = sequence->result.account;
    account.generated_tokens = sequence->result.tokens.size();
    finish(*sequence, account);
  }
  std::erase_if(running_, [](const auto& sequence) { return sequence->ended; });
}

void Generator::abandon(Sequence& sequence, const Error& error) {
  fail(sequence, error);
  sequence.ended = true;
  abandoned_.push_back(sequence.id);
}

void Generator::fail(Sequence& sequence, const Error& error) {
  sequence.result.error = error;
  sequence.reported = true;
  results_.push_back(std::move(sequence.result));
}

void Generator::finish(Sequence& sequence, const client::Account& account) {
  Generated& result = sequence.result;
  const auto now = Clock::now();
  result.account = account;
  result.text = tokenizer_->decode(sequence.request.prompt.back(), result.tokens);
  result.ttft_ms = milliseconds(sequence.first_token - sequence.added);
  const bool several = result.tokens.size() > 1;
  const double time = milliseconds(now - (several ? sequence.first_token : sequence.added));
  const double count = static_cast<double>(result.tokens.size()) - (several ? 1.0 : 0.0);
  result.tokens_per_s = time > 0 ? count * 1'000.0 / time : 0;
  sequence.reported = true;
  results_.push_back(std::move(result));
}

Generator::Sequence* Generator::find(SequenceId id) {
  const auto found =
      std::ranges::find_if(running_, [id](const auto& sequence) { return sequence->id == id; });
  return found == running_.end() ? nullptr : found->get();
}

}  // namespace kv::runner
