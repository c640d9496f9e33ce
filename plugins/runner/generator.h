// Generator: greedy generation of many requests at once over one Session: admits them as room
// allows, prefills what the cache does not hold in chunks, decodes all running ones together,
// publishes every full block and follows the tables that the service answers with. Owner: refers to
// the model, tokenizer, kernel and session; they outlive it. One Generator a Session. Threads: one
// caller at a time. Cost: a step is one forward pass and one message.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "allocator/base/result.h"
#include "plugins/client/session.h"
#include "plugins/runner/decoder.h"
#include "plugins/runner/model_identity.h"
#include "plugins/runner/tokenizer.h"

namespace kv::runner {

enum class KeepLogits : std::uint8_t { none, first, all };  // of the generated positions

struct GenerateRequest {
  std::vector<Token> prompt;      // not empty; without the leading token nothing is added
  std::uint32_t max_tokens = 16;  // at least 1
  KeepLogits keep_logits = KeepLogits::none;
  bool skip_read = false;  // use no cached block; still publish
};

struct Generated {
  std::uint32_t request = 0;  // as add() numbered it
  Error error{ErrorCode::ok, {}, {}};
  std::vector<Token> tokens;  // without the end-of-text token that may have ended it
  std::string text;
  client::Account account;            // as the service counts: hits by tier, computed, generated
  std::uint64_t computed_tokens = 0;  // prompt positions whose KV this runner computed itself
  double ttft_ms = 0;                 // from add() to the first token
  double tokens_per_s = 0;            // after the first token; of the whole where there is only one
  std::vector<float> logits;          // [kept positions][vocab]
};

class Generator {
 public:
  struct Options {
    std::uint32_t block_tokens = 16;
    std::uint32_t chunk_tokens = 64;  // of one sequence's prompt in one step
    std::uint32_t running_max = 32;
    std::chrono::milliseconds call_timeout{30'000};
    std::chrono::milliseconds admit_timeout{60'000};  // waiting for others to free memory
  };
  // Attaches the pool. fails: as Session::attach_pool and Decoder::make; invalid options.
  [[nodiscard]] static Result<std::unique_ptr<Generator>> make(
      const Model& model, const Tokenizer& tokenizer, const kv_kernel& kernel, GemmBackend backend,
      client::Session& session, const Options& options);
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  Generator(Generator&&) = delete;
  Generator& operator=(Generator&&) = delete;
  ~Generator();

  // The request's number: 0, 1, ... fails: invalid (empty, a token outside the vocabulary, longer
  // than the model's context).
  [[nodiscard]] Result<std::uint32_t> add(GenerateRequest request);
  // One forward pass over everything that runs; false when nothing is left. An error is the
  // session's and ends all; a request's own error is in its result.
  [[nodiscard]] Result<bool> step();
  // Steps until all ended. Results by request number.
  [[nodiscard]] Result<std::vector<Generated>> run();
  // Ended requests not yet taken, in the order of their end.
  [[nodiscard]] std::vector<Generated> take_results();

  // What lost the service (stale, unavailable, deadline), or ok.
  [[nodiscard]] const Error& session_error() const { return session_error_; }
  [[nodiscard]] std::uint64_t step_count() const { return step_seq_; }
  [[nodiscard]] const KvLayout& layout() const { return layout_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Sequence;

  Generator(const Model& model, const Tokenizer& tokenizer, client::Session& session,
            const Options& options, ModelIdentity identity, Decoder decoder);
  [[nodiscard]] Result<void> admit_waiting();
  [[nodiscard]] Result<bool> admit_one(Sequence& sequence);
  [[nodiscard]] Result<void> forward();
  void take_logits(std::size_t row, Sequence& sequence);
  [[nodiscard]] Result<void> report();
  void apply(const client::StepOutcome& outcome);
  void go_on_alone();
  void finish_alone();
  void abandon(Sequence& sequence, const Error& error);
  void fail(Sequence& sequence, const Error& error);
  void finish(Sequence& sequence, const client::Account& account);
  [[nodiscard]] Sequence* find(SequenceId id);

  const Model* model_;
  const Tokenizer* tokenizer_;
  client::Session* session_;
  Options options_;
  KvLayout layout_;
  ModelIdentity identity_;
  Decoder decoder_;

  std::uint32_t next_request_ = 0;
  std::uint64_t step_seq_ = 0;
  Error session_error_{ErrorCode::ok, {}, {}};
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in the order of admission
  std::vector<SequenceId> abandoned_;               // opened, to be freed with the next step
  std::vector<Generated> results_;
  std::vector<float> logits_;
};

}  // namespace kv::runner
