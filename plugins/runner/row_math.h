// The element-wise parts of a decoder layer, one row at a time, in one fixed order: a row's result
// does not depend on the other rows of the batch. Portable; no compiler flag may reorder the sums.
// Threads: any, on different outputs. Cost: O(count).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/token.h"

namespace kv::runner {

// Sum of products in eight lanes, folded in a fixed tree.
[[nodiscard]] float dot(const float* a, const float* b, std::size_t count);

// output = weight * row / rms(row).
void rms_norm(std::span<const float> row, const float* weight, float epsilon, float* output);

// gate = silu(gate) * up.
void swiglu(std::span<float> gate, const float* up);

// row += other.
void add(std::span<float> row, const float* other);

// Rotary position embedding of interleaved pairs (2i, 2i + 1).
class Rope {
 public:
  Rope(std::uint32_t head_dim, std::uint32_t context_length, float theta);
  // Turns every head of a row. requires: position < context_length.
  void apply(std::span<float> heads, std::uint32_t position) const;

 private:
  std::uint32_t pairs_;
  std::vector<float> cosine_;  // [position][pair]
  std::vector<float> sine_;
};

// Greedy sampling: the index of the greatest logit, the lowest among equals.
[[nodiscard]] Token argmax(std::span<const float> logits);

}  // namespace kv::runner
