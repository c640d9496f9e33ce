// Any bytes as connections to the attach socket and what they say, against the real server: one
// reply to each packet, and the right one.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/attach_program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static kv::testing::AttachHarness harness;
  kv::testing::AttachProgram program(harness, {data, size});
  program.run();
  return 0;
}
