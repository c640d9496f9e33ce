// A run of the service without its shell, driven by arbitrary bytes: each few bytes are one event
// (a request that goes through the wire codec, a raw frame, the end of a transfer, time, a death).
// Everything the Engine answers is encoded and verified as a client would.
// Owner: the fuzz target or a test. Threads: none. Cost: O(events), each one Engine step or a few.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cachesvc/core/engine.h"
#include "cachesvc/wire/codec.h"
#include "tests/cachesvc/wire/frames.h"

namespace kv::testing {

class EngineProgram {
 public:
  // `bytes` outlives the program.
  explicit EngineProgram(std::span<const std::uint8_t> bytes);

  // Runs all events, then lets every transfer end and every client die. Broken promises stop the
  // process (KV_CHECK).
  void run();

  struct Counts {
    std::uint32_t requests = 0, refused_frames = 0, replies = 0, ok_replies = 0, transfers = 0;
    std::uint32_t repeated_reports = 0, pauses = 0, disk_offs = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] const core::Engine& engine() const { return engine_; }

 private:
  static constexpr std::size_t kClients = 3;

  std::uint8_t take();
  std::uint32_t take_below(std::uint32_t bound) { return take() % bound; }
  std::vector<std::uint32_t> take_tokens();

  void event();
  void attach(std::uint64_t client);
  void enter(std::uint64_t client);
  void raw_frame();
  void time_passes();
  void request(std::uint64_t client, std::uint8_t kind);
  [[nodiscard]] Frame request_of_kind(std::uint32_t kind, const FrameHeader& header);
  [[nodiscard]] Frame attach_pool(const FrameHeader& header);
  [[nodiscard]] Frame open(const FrameHeader& header);
  [[nodiscard]] Frame step_frame(const FrameHeader& header);
  [[nodiscard]] Frame lookup(const FrameHeader& header);
  [[nodiscard]] Frame clear(const FrameHeader& header);
  void submit(std::span<const std::byte> frame);
  void end_transfer(std::size_t index, std::uint8_t outcomes);
  void repeat_report(std::uint8_t outcomes);
  void end_sync(bool ok);
  void step(const core::InputView& input);
  void carry_out();
  void check_invariants();

  std::span<const std::uint8_t> bytes_;
  core::Engine engine_;
  codec::RequestDecoder decoder_;
  codec::ReplyEncoder encoder_;
  core::Actions actions_;
  TimePoint now_{};
  std::array<std::uint64_t, kClients + 1> last_request_{};
  std::array<std::uint64_t, kClients + 1> last_step_{};
  struct Transfer {
    core::StartTransfer start;
    std::vector<Digest> keys;  // of its blocks
  };
  std::deque<Transfer> transfers_;  // begun and not ended
  core::StartTransfer last_ended_;
  std::set<Digest> broken_keys_;  // of blocks that lost a copy to an error
  std::set<std::pair<ClientId, RequestId>> open_requests_;  // not answered: jobs may be running
  std::deque<std::uint64_t> syncs_;
  std::uint32_t steps_ = 0;
  Counts counts_;
};

}  // namespace kv::testing
