// The test cases of the CUDA kernels, written once: tests/kernels runs them on the fiber header in
// every lane order, tests/gpu/main on a GPU. Each compares with an independent reference in double
// precision or with the same work done another way, bit for bit.
// Threads: one. Cost: of `large` contexts, seconds on a GPU; of others, about a second on a CPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/paged.h"

namespace kv::gpu {

class Context {
 public:
  Context(Device& device, const kv_kernel& kernel, std::uint64_t seed, bool large)
      : device_(device), kernel_(kernel), seed_(seed), large_(large) {}
  [[nodiscard]] Device& device() { return device_; }
  [[nodiscard]] const kv_kernel& kernel() const { return kernel_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] bool large() const { return large_; }
  [[nodiscard]] std::uint32_t small_or_large(std::uint32_t small, std::uint32_t big) const {
    return large_ ? big : small;
  }
  // Of what is checked next, for the text of a failure.
  void at(std::string what) { what_ = std::move(what); }
  void expect(bool holds, const std::string& otherwise);
  void expect_ok(std::int32_t status, const std::string& call);
  void expect_near(double got, double want, double tolerance, const std::string& what);
  [[nodiscard]] std::uint64_t checks() const { return checks_; }
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }
  // The largest error seen by expect_near, as a part of its tolerance.
  [[nodiscard]] double worst() const { return worst_; }

 private:
  Device& device_;
  const kv_kernel& kernel_;
  std::uint64_t seed_;
  bool large_;
  std::string what_;
  std::uint64_t checks_ = 0;
  std::vector<std::string> failures_;
  double worst_ = 0;
};

struct Case {
  const char* name;  // a sentence about behaviour, as a test name
  void (*run)(Context& context);
};

std::span<const Case> attention_cases();
std::span<const Case> invariance_cases();
std::span<const Case> memory_cases();

// --- what the cases are made of (attend.cc)
struct Attended {
  std::vector<std::byte> output;  // of output_dtype
  std::vector<float> lse;
};

// How a run is made; none of it may change a bit.
struct Way {
  bool workspace = true;  // false: no memory for partial results, so one block takes all splits
};

// The rows of a batch: queries of [row][head][dim], seeded by sequence and position.
struct Batch {
  Batch(Context& context, const Shape& shape, const std::vector<Sequence>& sequences);
  kv_kernel_batch host{}, device{};
  std::vector<std::uint32_t> row_start, kv_length, table;
  std::vector<std::uint32_t> query_bits;
  Buffer<std::uint32_t> row_start_there, kv_length_there, table_there;
  std::vector<std::byte> query_bytes;
  Buffer<std::byte> query_there;
};

Attended attend(Context& context, const Shape& shape, const Pool& pool, const Batch& batch,
                std::uint32_t layer, const Way& way = {});

// Textbook softmax in double over what the host knows of the pool, in no split.
struct Expected {
  std::vector<double> output, lse;
};
Expected expected(const Shape& shape, const Pool& pool, const std::vector<Sequence>& sequences,
                  const Batch& batch, std::uint32_t layer);

// Compares output and LSE, in the output's own precision.
void expect_attended(Context& context, const Shape& shape, const Attended& got,
                     const Expected& want);
void expect_same(Context& context, const Attended& got, const Attended& want,
                 const std::string& what);

std::string text_of(const Shape& shape);

}  // namespace kv::gpu
