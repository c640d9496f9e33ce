// The sessions of a weka trace, brought into the order of arrival: session i starts i staggers
// after the first; requests by time, then session, then place in the session. Ids are a session's
// own. Owner: the readers of both weka formats. Threads: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/base/result.h"
#include "tools/cachesim/trace_reader.h"

namespace kv::cachesim {

class WekaSessions {
 public:
  // A request of session `session` (from 0); its time counts from the session's start.
  void add(std::uint32_t session, const TraceRequest& request, std::vector<BlockRun> runs) {
    arrivals_.push_back({session, arrivals_.size(), request, std::move(runs)});
  }
  [[nodiscard]] Result<void> finish(Reading& reading);

 private:
  struct Arrival {
    std::uint32_t session = 0;
    std::size_t place = 0;  // in the order of reading
    TraceRequest request;
    std::vector<BlockRun> runs;
  };
  std::vector<Arrival> arrivals_;
};

}  // namespace kv::cachesim
