// ReplyEncoder: replies and notices of the core -> one frame for the client.
// Owner: the shell's loop, one encoder for all clients. Threads: one caller at a time.
// Cost: O(bytes of the reply). The buffer is reused: no allocation once it has grown.
// A reply is never refused here: its size is bounded by what the Engine answers (tables of at most
// Options::sequence_tokens_max tokens), not by kMessageBytesMax.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cachesvc/core/actions.h"
#include "cachesvc/wire/id128.h"
#include "cachesvc/wire/shell_counters.h"

namespace kv::codec {

class ReplyEncoder {
 public:
  // `boot` goes into every message. `shell` is read whenever a status is encoded, and outlives the
  // encoder; null: status has the counters of the core only.
  explicit ReplyEncoder(const Id128& boot, const ShellCounters* shell = nullptr);
  ~ReplyEncoder();
  ReplyEncoder(const ReplyEncoder&) = delete;
  ReplyEncoder& operator=(const ReplyEncoder&) = delete;
  ReplyEncoder(ReplyEncoder&&) = delete;
  ReplyEncoder& operator=(ReplyEncoder&&) = delete;

  // From now on in every status: why the configured disk tier is off.
  void set_disk_problem(std::string problem);

  // The bytes are valid until the next encode. `notices`: those of this client that it has not
  // acknowledged, oldest first.
  [[nodiscard]] std::span<const std::byte> encode(const core::Reply& reply,
                                                  std::span<const core::Notice> notices);
  // A message that answers no request (request 0).
  [[nodiscard]] std::span<const std::byte> encode_notices(std::span<const core::Notice> notices);

 private:
  struct State;  // hides the FlatBuffers headers
  std::unique_ptr<State> state_;
};

}  // namespace kv::codec
