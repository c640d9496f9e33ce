// Attention of a tile of N queries over the paged pool, on CUDA cores: one split at a time, first
// all scores of the split, then its softmax, then the weighted values. A block is four warps.
#pragma once

#include "kernels/cuda/attention.cuh"

namespace kv::cuda {

// How the lanes of a block share T keys of D channels among them.
template <class T, unsigned D>
struct Lanes {
  // Scores: 16 channels a lane, so that few shuffles join them.
  static constexpr unsigned kKeyLanes = D / 16;
  static constexpr unsigned kKeyVectors = 16 / T::kChannels;
  static constexpr unsigned kKeysAtOnce = kThreads / kKeyLanes;
  // Values: 16 bytes a lane, so that a warp reads whole rows.
  static constexpr unsigned kValueLanes = D / T::kChannels < kWarpLanes ? D / T::kChannels : 32;
  static constexpr unsigned kValueVectors = D / (T::kChannels * kValueLanes);
  static constexpr unsigned kValuesAtOnce = kThreads / kValueLanes;
  static constexpr unsigned kKeyUnroll = kKeyVectors == 4 ? 2 : 4;
  static constexpr unsigned kValueUnroll = kValueVectors == 2 ? 4 : 8;
};

template <unsigned D, unsigned N>
struct SplitMemory {
  std::uint32_t* slots;  // [kSplitTokens]: of each block of the split; kNoSlot: outside the pool
  float* weights;        // [kSplitTokens][N]: scores, then weights
  float* query;          // [N][D]
  float* warps;          // [kWarps][N][D]: values as each warp summed them
  float* reduced;        // [2][kWarps][N]
};

// The union of what the queries of a tile see, within one split; in tokens of the split.
struct Range {
  std::uint32_t sink_end, begin, end;
  __device__ bool has(std::uint32_t token) const {
    return token < end && (token >= begin || token < sink_end);
  }
};

// `token` counts from `base`, the first of the split. requires: its slot is in the pool.
__device__ inline const char* row_address(const Plane& plane, const std::uint32_t* slots,
                                          std::uint32_t base, std::uint32_t token,
                                          std::uint32_t block_shift, std::uint32_t head) {
  const std::uint32_t slot = slots[token >> block_shift];
  const std::uint32_t in_block = (base + token) & ((1U << block_shift) - 1U);
  return plane.base + slot * plane.block_stride + head * plane.head_stride +
         in_block * plane.token_stride;
}

// `visible`: of query threadIdx.x % kKeyLanes, where there is one.
template <class T, unsigned D, unsigned N>
__device__ void score_keys(const AttentionArguments& a, const SplitMemory<D, N>& memory,
                           std::uint32_t kv_head, const Range& range, std::uint32_t base,
                           const Visible& visible) {
  using L = Lanes<T, D>;
  const unsigned sub = threadIdx.x % L::kKeyLanes;
  const unsigned group = threadIdx.x / L::kKeyLanes;
  float query[N][16];
  for (unsigned n = 0; n < N; ++n) {
    for (unsigned c = 0; c < 16; ++c) {
      const unsigned vector = c / T::kChannels * L::kKeyLanes + sub;
      query[n][c] = memory.query[n * D + vector * T::kChannels + c % T::kChannels];
    }
  }
  KV_UNROLL(1)
  for (unsigned first = 0; first < kSplitTokens; first += L::kKeysAtOnce * L::kKeyUnroll) {
    if (first >= range.end) break;
    uint4 raw[L::kKeyUnroll][L::kKeyVectors];
    KV_UNROLL(L::kKeyUnroll)
    for (unsigned u = 0; u < L::kKeyUnroll; ++u) {
      const unsigned token = first + u * L::kKeysAtOnce + group;
      const bool read = range.has(token) && memory.slots[token >> a.block_shift] != kNoSlot;
      const char* row =
          read ? row_address(a.k, memory.slots, base, token, a.block_shift, kv_head) : nullptr;
      for (unsigned v = 0; v < L::kKeyVectors; ++v) {
        const unsigned vector = v * L::kKeyLanes + sub;
        const bool inside = vector * T::kChannels < a.head_dim;
        raw[u][v] = read && inside ? load_once(reinterpret_cast<const uint4*>(row) + vector)
                                   : uint4{0, 0, 0, 0};
      }
    }
    KV_UNROLL(L::kKeyUnroll)
    for (unsigned u = 0; u < L::kKeyUnroll; ++u) {
      const unsigned token = first + u * L::kKeysAtOnce + group;
      float key[16];
      for (unsigned v = 0; v < L::kKeyVectors; ++v) {
        T::decode(raw[u][v], key + v * T::kChannels);
      }
      const bool lost = memory.slots[token >> a.block_shift] == kNoSlot;
      for (unsigned n = 0; n < N; ++n) {
        float score = 0.0F;
        for (unsigned c = 0; c < 16; ++c) score = fmaf(query[n][c], key[c], score);
        for (unsigned lanes = 1; lanes < L::kKeyLanes; lanes *= 2) {
          score += __shfl_xor_sync(kAllLanes, score, static_cast<int>(lanes));
        }
        if (sub == n) {  // each of the first N lanes writes one query's
          score = lost ? float_of(0x7FFFFFFFU) : score * a.scale;  // NaN: it shows in the output
          memory.weights[token * N + n] =
              visible.has(base + token) ? score : -float_of(0x7F800000U);
        }
      }
    }
  }
}

// Scores to weights, in place. requires: scores of every token below `count` are written.
template <unsigned D, unsigned N>
__device__ void weigh(const SplitMemory<D, N>& memory, unsigned count) {
  constexpr unsigned kEach = kSplitTokens / kThreads;
  const float lowest = -float_of(0x7F800000U);
  const unsigned warp = threadIdx.x / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes;
  float score[kEach][N];
  for (unsigned n = 0; n < N; ++n) {
    float max = lowest;
    for (unsigned i = 0; i < kEach; ++i) {
      const unsigned token = i * kThreads + threadIdx.x;
      score[i][n] = token < count ? memory.weights[token * N + n] : lowest;
      max = fmaxf(max, score[i][n]);
    }
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, lanes));
    }
    if (lane == 0) memory.reduced[warp * N + n] = max;
  }
  __syncthreads();
  for (unsigned n = 0; n < N; ++n) {
    float max = lowest;
    for (unsigned w = 0; w < kWarps; ++w) max = fmaxf(max, memory.reduced[w * N + n]);
    float sum = 0.0F;
    for (unsigned i = 0; i < kEach; ++i) {
      const unsigned token = i * kThreads + threadIdx.x;
      const float weight = score[i][n] == lowest ? 0.0F : exp2_fast(score[i][n] - max);
      memory.weights[token * N + n] = weight;
      sum += weight;
    }
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    }
    if (lane == 0) memory.reduced[kWarps * N + warp * N + n] = sum;
  }
  __syncthreads();
}

template <class T, unsigned D, unsigned N>
__device__ void sum_values(const AttentionArguments& a, const SplitMemory<D, N>& memory,
                           std::uint32_t kv_head, const Range& range, std::uint32_t base) {
  using L = Lanes<T, D>;
  constexpr unsigned kEach = L::kValueVectors * T::kChannels;
  const unsigned sub = threadIdx.x % L::kValueLanes;
  const unsigned group = threadIdx.x / L::kValueLanes;
  float sum[N][kEach] = {};
  KV_UNROLL(1)
  for (unsigned first = 0; first < kSplitTokens; first += L::kValuesAtOnce * L::kValueUnroll) {
    if (first >= range.end) break;
    uint4 raw[L::kValueUnroll][L::kValueVectors];
    KV_UNROLL(L::kValueUnroll)
    for (unsigned u = 0; u < L::kValueUnroll; ++u) {
      const unsigned token = first + u * L::kValuesAtOnce + group;
      const bool read = range.has(token) && memory.slots[token >> a.block_shift] != kNoSlot;
      const char* row =
          read ? row_address(a.v, memory.slots, base, token, a.block_shift, kv_head) : nullptr;
      for (unsigned v = 0; v < L::kValueVectors; ++v) {
        const unsigned vector = v * L::kValueLanes + sub;
        const bool inside = vector * T::kChannels < a.head_dim;
        raw[u][v] = read && inside ? load_once(reinterpret_cast<const uint4*>(row) + vector)
                                   : uint4{0, 0, 0, 0};
      }
    }
    KV_UNROLL(L::kValueUnroll)
    for (unsigned u = 0; u < L::kValueUnroll; ++u) {
      const unsigned token = first + u * L::kValuesAtOnce + group;
      float value[kEach];
      for (unsigned v = 0; v < L::kValueVectors; ++v) {
        T::decode(raw[u][v], value + v * T::kChannels);
      }
      for (unsigned n = 0; n < N; ++n) {
        const float weight = memory.weights[token * N + n];
        if (weight != 0.0F) {  // what a query must not see does not count, were it a NaN
          for (unsigned c = 0; c < kEach; ++c) sum[n][c] = fmaf(weight, value[c], sum[n][c]);
        }
      }
    }
  }
  const unsigned warp = threadIdx.x / kWarpLanes;
  for (unsigned n = 0; n < N; ++n) {
    for (unsigned c = 0; c < kEach; ++c) {
      float total = sum[n][c];
      for (unsigned lanes = L::kValueLanes; lanes < kWarpLanes; lanes *= 2) {
        total += __shfl_xor_sync(kAllLanes, total, static_cast<int>(lanes));
      }
      const unsigned vector = c / T::kChannels * L::kValueLanes + sub;
      if (threadIdx.x % kWarpLanes < L::kValueLanes) {
        memory.warps[(warp * N + n) * D + vector * T::kChannels + c % T::kChannels] = total;
      }
    }
  }
  __syncthreads();
}

template <unsigned D, unsigned N>
__device__ Softmax softmax_of(const SplitMemory<D, N>& memory, unsigned n) {
  const float* max = memory.reduced + n;
  const float* sum = memory.reduced + kWarps * N + n;
  return {fmaxf(fmaxf(max[0], max[N]), fmaxf(max[2 * N], max[3 * N])),
          (sum[0] + sum[N]) + (sum[2 * N] + sum[3 * N])};
}

template <unsigned D, unsigned N>
__device__ float value_of(const SplitMemory<D, N>& memory, unsigned element) {
  const float* warp = memory.warps + element;
  return (warp[0] + warp[N * D]) + (warp[2 * N * D] + warp[3 * N * D]);
}

}  // namespace kv::cuda
