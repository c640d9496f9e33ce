// Any bytes as a run of the service: requests, raw frames, transfers that end in any way and order,
// deaths. The Engine keeps its promises, and nothing of any client is left at the end.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/engine_program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kv::testing::EngineProgram program({data, size});
  program.run();
  return 0;
}
