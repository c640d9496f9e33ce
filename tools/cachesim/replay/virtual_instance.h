// VirtualInstance: an inference engine without a model. It queues requests, has the service admit
// them first come first served, and runs steps of continuous batching: each sequence that decodes
// gets one token, what is left of the step's tokens goes to prompts in the order of admission.
// It talks to the service by the inputs of a client, and sends the Steps that say something.
//
// The prompt that the service sees is the blocks of the trace and one more, which stands for the
// token that is always computed; what a request generates is reserved with it and never published,
// since no trace says which blocks it became.
// Owner: Machine; the others outlive it. Threads: none. Cost: a step is O(sequences + blocks).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "allocator/base/time_point.h"
#include "tools/cachesim/replay/compute_model.h"
#include "tools/cachesim/replay/request_result.h"
#include "tools/cachesim/replay/virtual_service.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

struct InstanceOptions {
  std::uint32_t sequences_max = 256;      // admitted at one time
  std::uint32_t step_tokens_max = 8'192;  // of one step
  // Counts, as `hits` defines them: a request that does not fit keeps its first blocks, nothing is
  // generated, and the token that is always computed counts as a hit when its block is one.
  bool counts_only = false;
  std::uint32_t device_slots = 0;
};

class VirtualInstance {
 public:
  VirtualInstance(const InstanceOptions& options, const Trace& trace, const ComputeModel& compute,
                  VirtualService& service, std::span<RequestResult> results);

  void arrive(TimePoint now, std::uint32_t request);
  // Ends the step that is due, takes what the service said, and begins the next step.
  void advance(TimePoint now);
  // When the step that runs ends; kNever when none does.
  [[nodiscard]] TimePoint next() const { return step_end_; }

  [[nodiscard]] std::uint64_t finished() const { return finished_; }  // requests, refused ones too
  [[nodiscard]] std::size_t outstanding() const { return waiting_.size() + running_.size(); }
  // Of prompts that are here, as far as is known: all of those that wait for admission.
  [[nodiscard]] std::uint64_t prompt_tokens_left() const { return prompt_tokens_left_; }
  // Of the request's prompt, if it were admitted now. Changes nothing.
  [[nodiscard]] std::uint64_t uncached_tokens(TimePoint now, std::uint32_t request);
  [[nodiscard]] std::uint64_t steps() const { return step_seq_; }
  [[nodiscard]] Duration computing() const { return computing_; }  // time in steps

 private:
  enum class Phase : std::uint8_t { admitting, loading, prefill, decode };
  struct Sequence {
    std::uint32_t request = 0;
    Phase phase = Phase::admitting;
    std::uint32_t block_count = 0;       // of the prompt, as the service knows it
    std::uint32_t published_blocks = 0;  // matched or told
    std::uint64_t prompt_tokens = 0;
    std::uint64_t output_tokens = 0;
    std::uint64_t position = 0;         // tokens with keys and values
    std::uint64_t emitted = 0;          // tokens generated
    std::uint32_t appended_blocks = 0;  // of what was generated
    std::uint32_t table_version = 0;    // to be acknowledged; 0: nothing is
    std::uint64_t step_tokens = 0;      // in the step that runs
    bool in_step = false;
    bool done = false;
    RequestId admit_request;
  };
  struct Waiting {
    std::uint32_t request = 0;
    bool opened = false;
  };

  template <class Request>
  RequestId ask(TimePoint now, Request request);
  void take_answers(TimePoint now);
  void on_reply(TimePoint now, const core::Reply& reply);
  void on_admitted(TimePoint now, Sequence& sequence, const core::AdmitReply& reply);
  void on_not_admitted(TimePoint now, std::size_t index, const core::Reply& reply);
  void on_ready(TimePoint now, SequenceId id, bool ok);
  [[nodiscard]] Sequence* find(std::uint32_t request);

  void open(TimePoint now, std::uint32_t request);
  void admit(TimePoint now);
  void begin_step(TimePoint now);
  void end_step(TimePoint now);
  [[nodiscard]] bool progress(TimePoint now, Sequence& sequence);
  [[nodiscard]] std::uint32_t computed_blocks(const Sequence& sequence) const;
  void send_step(TimePoint now);
  [[nodiscard]] std::uint32_t prompt_blocks(const TraceRequest& request) const;
  [[nodiscard]] std::uint32_t blocks_of(std::uint64_t tokens) const;

  InstanceOptions options_;
  const Trace* trace_;
  const ComputeModel* compute_;
  VirtualService* service_;
  std::span<RequestResult> results_;  // by request of the trace
  std::uint64_t last_request_ = 0;
  std::uint64_t last_notice_ = 0;
  std::uint64_t step_seq_ = 0;

  std::deque<Waiting> waiting_;    // for admission
  std::vector<Sequence> running_;  // in the order of admission
  bool no_room_ = false;           // the first that waits was refused, and nothing changed since
  std::uint64_t transfers_seen_ = 0;
  TimePoint step_end_ = kNever;
  Duration computing_{};
  std::uint64_t finished_ = 0;
  std::uint64_t prompt_tokens_left_ = 0;
  std::uint64_t looked_up_blocks_ = 0;  // hit, of the last Lookup

  VirtualService::Answers answers_;
  std::vector<Token> tokens_;          // of an Open or a Step, scratch
  std::vector<core::StepItem> items_;  // of the next Step
};

}  // namespace kv::cachesim
