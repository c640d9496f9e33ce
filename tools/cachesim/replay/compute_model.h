// ComputeModel: how long a device computes on one step of an instance. From tables of measured
// kernels (data/README.md): the linear layers by the rows of the step, attention by the tokens in
// front; reading the cached keys and values for decoding by the memory's bandwidth.
// Owner: Replay. Threads: none. Cost: O(log points) each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.h"
#include "allocator/base/time_point.h"

namespace kv::cachesim {

// Nanoseconds by tokens, linear between measured points. Below the first point: its value, since
// weights are read whole for a few rows, too.
struct TimeCurve {
  struct Point {
    std::uint64_t tokens = 0;
    std::uint64_t ns = 0;
  };
  std::vector<Point> points;  // by rising tokens, at least two

  // Beyond the last point: on, as the last two lie.
  [[nodiscard]] std::uint64_t at(std::uint64_t tokens) const;
  // For what grows with the square of the tokens. From 0 to the first point: on a straight line;
  // beyond the last: with the square.
  [[nodiscard]] std::uint64_t at_quadratic(std::uint64_t tokens) const;
};

// One model on one kind of device.
struct ComputeTable {
  std::string gpu, model, weights;
  std::uint32_t tensor_parallel = 1;
  TimeCurve linear;     // GEMMs and what is done by element, by rows of a step
  TimeCurve attention;  // of a prompt computed at once, by its tokens
};
// The file data/prefill_kernel_times.csv, by the build; and the tables in it.
[[nodiscard]] std::string_view prefill_kernel_times();
[[nodiscard]] const std::vector<ComputeTable>& known_compute_tables();
// Rows as in data/prefill_kernel_times.csv. fails: invalid.
[[nodiscard]] Result<std::vector<ComputeTable>> parse_compute_tables(std::string_view csv);

class ComputeModel {
 public:
  struct Options {
    const ComputeTable* table = nullptr;         // outlives the model; null: nothing takes time
    std::uint64_t token_bytes = 0;               // keys and values of a token, on one device
    std::uint64_t memory_bytes_per_second = 0;   // 0: reading them takes no time
    Duration step_overhead{};                    // of the scheduler, each step
    std::uint64_t slowdown_thousandths = 1'000;  // of a real engine against its kernels
  };
  explicit ComputeModel(const Options& options) : options_(options) {}

  // Tokens [begin, end) of a prompt attend to themselves and to what is in front of them. In
  // pieces it is as much as at once.
  [[nodiscard]] std::uint64_t attention_ns(std::uint64_t begin, std::uint64_t end) const;
  // rows: all tokens of the step; attention_ns: of its pieces of prompts, summed; decode_context:
  // tokens in front of each sequence that decodes, summed.
  [[nodiscard]] Duration step_time(std::uint64_t rows, std::uint64_t attention_ns,
                                   std::uint64_t decode_context) const;

 private:
  Options options_;
};

}  // namespace kv::cachesim
