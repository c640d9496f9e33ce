// Pairs: a piece of work and its limit, measured in turn, so that what disturbs the machine meets
// both. The figures are medians: of the work's time, of the limit's, and of the pairs' ratios.
// Threads: none. Cost: two readings of the clock a piece.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace kv::cachebench {

struct Pairs {
  double work_ns = 0;
  double limit_ns = 0;
  double ratio = 0;
};

// What the result of a piece is added to, so that it is not optimised away.
inline std::uint64_t& sink() {
  static std::uint64_t sum = 0;
  return sum;
}

[[nodiscard]] inline double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Piece>
[[nodiscard]] double time_of(Piece&& piece) {
  const auto start = std::chrono::steady_clock::now();
  sink() += piece();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count();
}

// `work(i)` and `limit(i)` prepare round i, untimed, and return the piece that is timed: a callable
// that returns a number.
template <class Work, class Limit>
[[nodiscard]] Pairs measure(std::uint32_t rounds, Work&& work, Limit&& limit) {
  std::vector<double> works, limits, ratios;
  works.reserve(rounds);
  limits.reserve(rounds);
  ratios.reserve(rounds);
  for (std::uint32_t i = 0; i < rounds; ++i) {
    works.push_back(time_of(work(i)));
    limits.push_back(time_of(limit(i)));
    ratios.push_back(works.back() / limits.back());
  }
  return {median(works), median(limits), median(ratios)};
}

}  // namespace kv::cachebench
