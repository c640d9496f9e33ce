// Shuffles, votes, mma, and the 16-bit floats that mma takes. Not instrumented, as the scheduler.
#include "tests/support/cuda_fiber_exchange.h"

#include <bit>
#include <cmath>

namespace kv::fiber {
namespace {

class Exchanger {
 public:
  explicit Exchanger(const std::array<Operand*, kWarp>& operands) : operands_(operands) {}
  void run() {
    std::uint32_t ballot = 0;
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      if (operands_[i] != nullptr && operands_[i]->in[0] != 0) ballot |= 1U << i;
    }
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      if (operands_[i] == nullptr) continue;
      switch (operands_[i]->exchange) {
        case Exchange::none:
          break;
        case Exchange::vote:
          operands_[i]->out[0] = ballot;
          break;
        case Exchange::shuffle:
          shuffle(*operands_[i]);
          break;
        case Exchange::mma_bf16:
        case Exchange::mma_f16:
          multiply(i);
          break;
      }
    }
  }

 private:
  void shuffle(Operand& to) const {
    const Operand* from = to.source < kWarp ? operands_[to.source] : nullptr;
    for (std::uint32_t w = 0; w < to.words; ++w) {
      to.out[w] = from == nullptr ? kPoison : from->in[w];
    }
  }
  [[nodiscard]] float number(std::uint32_t lane, std::uint32_t word, std::uint32_t half) const {
    const Operand& operand = *operands_[lane];
    const auto bits = static_cast<std::uint16_t>(operand.in[word] >> (16 * half));
    return operand.exchange == Exchange::mma_bf16
               ? std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U)
               : half_to_float(bits);
  }
  // D = A B + C of m16n8k16 in the register layout of the PTX manual, k ascending.
  void multiply(std::uint32_t lane) {
    Operand& to = *operands_[lane];
    for (std::uint32_t c = 0; c < 4; ++c) {
      const std::uint32_t row = lane / 4 + (c < 2 ? 0 : 8);
      const std::uint32_t column = lane % 4 * 2 + c % 2;
      float sum = to.sum[c];
      for (std::uint32_t k = 0; k < 16; ++k) {
        const std::uint32_t owner = k % 8 / 2;
        const float a = number(row % 8 * 4 + owner, (row < 8 ? 0 : 1) + (k < 8 ? 0 : 2), k % 2);
        const float b = number(column * 4 + owner, 4 + k / 8, k % 2);
        sum = std::fma(a, b, sum);
      }
      to.sum[c] = sum;
    }
  }
  std::array<Operand*, kWarp> operands_;
};

}  // namespace

void exchange(const std::array<Operand*, kWarp>& operands) { Exchanger(operands).run(); }

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U);
  if (exponent != 0) {
    return std::bit_cast<float>(sign | (exponent + 112) << 23U | fraction << 13U);
  }
  const float tiny = static_cast<float>(fraction) * 0x1p-24F;  // exact
  return sign == 0 ? tiny : -tiny;
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7FFFU);  // NaN
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {  // below the smallest normal: adding 0.5 rounds at its last bit
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0x7FFFU));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + (magnitude >> 13U & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23U)) >> 13U));
}

}  // namespace kv::fiber
