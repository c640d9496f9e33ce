// The words of CUDA C++ as host C++: kernels compiled against this header run on a CPU, each thread
// of a block on a fiber of its own (Boost.Context). Barriers, shuffles, votes and mma are
// rendezvous; blocks run one after another. What a GPU leaves undefined is made to show: shared
// memory is poisoned, lanes run in a chosen order, and what can never be right (an exited lane in a
// mask, threads that wait at different barriers) is a fault with a message.
//
// Owner: a launch owns nothing beyond its return; stacks are kept for the thread. Threads: launches
// on different threads do not see each other. Cost: some ten nanoseconds for each lane and
// rendezvous; under the thread sanitizer each lane is a thread to it, ordered by barriers only.
// Not emulated: waiting for another block, clusters, TMA, weak memory order between blocks.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

namespace kv::fiber {

enum class LaneOrder : std::uint8_t { ascending, descending, random };

struct Options {
  LaneOrder order = LaneOrder::ascending;  // of lanes between two rendezvous, and of blocks
  std::uint64_t seed = 1;                  // of LaneOrder::random
};

// How launches of this thread run while it lives. Without one: ascending, and a fault ends the
// process. Sessions do not nest.
class Session {
 public:
  explicit Session(const Options& options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  Session(Session&&) = delete;
  Session& operator=(Session&&) = delete;
  ~Session();
  [[nodiscard]] const Options& options() const { return options_; }
  // The first fault of any launch since the session began; empty: none.
  [[nodiscard]] const std::string& fault() const { return fault_; }
  void set_fault(std::string_view text) {
    if (fault_.empty()) fault_ = text;
  }

 private:
  Options options_;
  std::string fault_;
};

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Runs body(argument) on every lane of every block. 0, or 719 (as CUDA's launch failure) when a
// fault was caught by the session.
int run_grid(Dim3 grid, Dim3 block, void (*body)(const void*), const void* argument);

// Of the lane that calls. requires: called by a kernel.
Dim3 thread_index();
Dim3 block_index();
Dim3 block_size();
Dim3 grid_size();

// The same memory for every lane of the block at this site, poisoned when the block starts.
void* shared_memory(const void* site, std::size_t bytes, std::size_t alignment,
                    std::string_view name);

enum class Exchange : std::uint8_t { none, shuffle, vote, mma_bf16, mma_f16 };

// What one lane brings to a warp collective and takes from it.
struct Operand {
  Exchange exchange = Exchange::none;
  std::uint32_t source = 0;  // shuffle: the lane to read from
  std::uint32_t words = 0;   // shuffle: how many
  std::uint32_t in[6] = {};  // mma: four words of A, two of B
  std::uint32_t out[2] = {};
  float sum[4] = {};  // mma: C, then D
};

void block_barrier(const std::source_location& at);
// `orders`: writes before it are seen after it (__syncwarp); shuffles and votes order nothing.
void warp_collective(std::uint32_t mask, bool orders, Operand& operand,
                     const std::source_location& at);
std::uint32_t lane_of_warp();

// IEEE binary16 by integer arithmetic, rounded to nearest even.
float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);

template <class T>
T shuffle(std::uint32_t mask, T value, std::uint32_t source, const std::source_location& at) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  Operand operand;
  operand.exchange = Exchange::shuffle;
  operand.source = source;
  operand.words = sizeof(T) / 4;
  std::memcpy(operand.in, &value, sizeof(T));
  warp_collective(mask, false, operand, at);
  std::memcpy(&value, operand.out, sizeof(T));
  return value;
}

inline std::uint32_t vote(std::uint32_t mask, bool predicate, const std::source_location& at) {
  Operand operand;
  operand.exchange = Exchange::vote;
  operand.in[0] = predicate ? 1 : 0;
  warp_collective(mask, false, operand, at);
  return operand.out[0];
}

// The trampoline of a launch: a kernel takes one argument, by value.
template <class Argument>
int launch(void (*kernel)(Argument), Dim3 grid, Dim3 block, const Argument& argument) {
  struct Call {
    void (*kernel)(Argument);
    const Argument& argument;
  };
  const Call call{kernel, argument};
  return run_grid(
      grid, block,
      [](const void* pointer) {
        const Call& c = *static_cast<const Call*>(pointer);
        c.kernel(c.argument);
      },
      &call);
}

}  // namespace kv::fiber

// CUDA's own names, as CUDA spells them.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (kv::fiber::thread_index())
#define blockIdx (kv::fiber::block_index())
#define blockDim (kv::fiber::block_size())
#define gridDim (kv::fiber::grid_size())

using dim3 = kv::fiber::Dim3;
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

#define KV_FIBER_HERE const std::source_location& at = std::source_location::current()

inline void __syncthreads(KV_FIBER_HERE) { kv::fiber::block_barrier(at); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, KV_FIBER_HERE) {
  kv::fiber::Operand operand;
  kv::fiber::warp_collective(mask, true, operand, at);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, KV_FIBER_HERE) {
  const auto self = kv::fiber::lane_of_warp();
  const auto within = static_cast<unsigned>(width) - 1;
  return kv::fiber::shuffle(mask, value, (self & ~within) | (static_cast<unsigned>(lane) & within),
                            at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, KV_FIBER_HERE) {
  const auto self = kv::fiber::lane_of_warp();
  const auto source = self ^ static_cast<unsigned>(lane_mask);
  const bool inside = source < (self | (static_cast<unsigned>(width) - 1)) + 1;
  return kv::fiber::shuffle(mask, value, inside ? source : self, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, KV_FIBER_HERE) {
  const auto self = kv::fiber::lane_of_warp();
  const auto last = self | (static_cast<unsigned>(width) - 1);
  return kv::fiber::shuffle(mask, value, self + delta <= last ? self + delta : self, at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, KV_FIBER_HERE) {
  const auto self = kv::fiber::lane_of_warp();
  const auto first = self & ~(static_cast<unsigned>(width) - 1);
  return kv::fiber::shuffle(mask, value, self >= first + delta ? self - delta : self, at);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, KV_FIBER_HERE) {
  return kv::fiber::vote(mask, predicate != 0, at);
}
inline int __any_sync(unsigned mask, int predicate, KV_FIBER_HERE) {
  return kv::fiber::vote(mask, predicate != 0, at) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, KV_FIBER_HERE) {
  return kv::fiber::vote(mask, predicate == 0, at) == 0 ? 1 : 0;
}
// Relaxed, as on a GPU: no order for other memory.
template <class T>
T atomicAdd(T* address, T value) {
  static_assert(std::is_integral_v<T>);
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicMax(T* address, T value) {
  static_assert(std::is_integral_v<T>);
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(address, &old, value, true, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
T atomicCAS(T* address, T expected, T desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;
}
#undef KV_FIBER_HERE
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
