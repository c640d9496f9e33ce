// One message of every kind, with values of their own: what the golden files hold, what
// hostile-input tests damage, and what the fuzzers start from. Owner: the caller. Threads: none.
// Cost: O(bytes).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kv::testing {

struct Sample {
  std::string name;  // of the golden file, without its ending
  std::vector<std::byte> bytes;
};

// Built with FlatBuffers by hand, as a client would.
[[nodiscard]] std::vector<Sample> request_samples();
[[nodiscard]] Sample attach_request_sample();
// Built by the service's encoders from literal core values.
[[nodiscard]] std::vector<Sample> reply_samples();
[[nodiscard]] std::vector<Sample> attach_reply_samples();
// All of them.
[[nodiscard]] std::vector<Sample> all_samples();

}  // namespace kv::testing
