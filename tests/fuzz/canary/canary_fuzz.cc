// The bird in the mine: real bugs, on purpose, behind a few bytes of input. If the fuzz build does
// not report them, it would report no bug of ours either.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

namespace {

// Not const, so that no compiler sees the outcome.
volatile int one = 1;

int read_beyond_the_heap() {
  const auto bytes = std::make_unique<volatile std::uint8_t[]>(8);
  return bytes[static_cast<std::size_t>(7 + one)];
}

int overflow_a_number() { return std::numeric_limits<int>::max() + one; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  if (bytes.size() < 3 || bytes[0] != 'K' || bytes[1] != 'V') return 0;
  volatile int sink = 0;
  if (bytes[2] == 'A') sink = read_beyond_the_heap();
  if (bytes[2] == 'U') sink = overflow_a_number();
  return sink == 3 ? 0 : 0;
}
