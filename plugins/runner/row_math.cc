#include "plugins/runner/row_math.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace kv::runner {

float dot(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) lanes[i % kLanes] += a[i] * b[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

void rms_norm(std::span<const float> row, const float* weight, float epsilon, float* output) {
  const float mean = dot(row.data(), row.data(), row.size()) / static_cast<float>(row.size());
  const float factor = 1.0F / std::sqrt(mean + epsilon);
  for (std::size_t i = 0; i < row.size(); ++i) output[i] = weight[i] * (factor * row[i]);
}

void swiglu(std::span<float> gate, const float* up) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    gate[i] = gate[i] * (1.0F / (1.0F + std::exp(-gate[i]))) * up[i];
  }
}

void add(std::span<float> row, const float* other) {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] += other[i];
}

Rope::Rope(std::uint32_t head_dim, std::uint32_t context_length, float theta)
    : pairs_(head_dim / 2) {
  cosine_.reserve(std::size_t{pairs_} * context_length);
  sine_.reserve(std::size_t{pairs_} * context_length);
  for (std::uint32_t position = 0; position < context_length; ++position) {
    for (std::uint32_t pair = 0; pair < pairs_; ++pair) {
      const float power = static_cast<float>(2 * pair) / static_cast<float>(head_dim);
      const float angle = static_cast<float>(position) * (1.0F / std::pow(theta, power));
      cosine_.push_back(std::cos(angle));
      sine_.push_back(std::sin(angle));
    }
  }
}

void Rope::apply(std::span<float> heads, std::uint32_t position) const {
  const float* cosine = cosine_.data() + std::size_t{position} * pairs_;
  const float* sine = sine_.data() + std::size_t{position} * pairs_;
  for (std::size_t i = 0; i < heads.size() / 2; ++i) {
    const std::size_t pair = i % pairs_;
    const float x = heads[2 * i];
    const float y = heads[2 * i + 1];
    heads[2 * i] = x * cosine[pair] - y * sine[pair];
    heads[2 * i + 1] = x * sine[pair] + y * cosine[pair];
  }
}

Token argmax(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace kv::runner
