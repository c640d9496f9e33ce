// How cuda_fiber.cc tells the sanitizers which stack runs, which memory is fresh and which lanes
// are ordered; without a sanitizer all of it is nothing. Internal to the fiber header. Threads:
// each uses its own stacks; tokens are shared. Cost: as the sanitizer's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define KV_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KV_FIBER_ASAN 1
#endif
#endif
#ifdef KV_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef KV_FIBER_TSAN  // set by the build: the scheduler itself is compiled without it
#include <sanitizer/tsan_interface.h>
#endif

namespace kv::fiber {

#ifdef KV_FIBER_ASAN
// Between two shared arrays; stays poisoned, so that an index beyond an array is caught.
inline constexpr std::size_t kSharedGap = 32;
inline void forbid(void* data, std::size_t bytes) { __asan_poison_memory_region(data, bytes); }
inline void allow(void* data, std::size_t bytes) { __asan_unpoison_memory_region(data, bytes); }
// `keep` is where the leaving stack's state is kept; null: it is left for good.
inline void before_switch(void** keep, const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(keep, stack, bytes);
}
inline void after_switch(void* kept, const void** from, std::size_t* from_bytes) {
  __sanitizer_finish_switch_fiber(kept, from, from_bytes);
}
#else
inline constexpr std::size_t kSharedGap = 0;
inline void forbid(void* /*data*/, std::size_t /*bytes*/) {}
inline void allow(void* /*data*/, std::size_t /*bytes*/) {}
inline void before_switch(void** /*keep*/, const void* /*stack*/, std::size_t /*bytes*/) {}
inline void after_switch(void* /*kept*/, const void** /*from*/, std::size_t* /*bytes*/) {}
#endif

#ifdef KV_FIBER_TSAN
inline constexpr bool kRaces = true;
inline void* new_identity() { return __tsan_create_fiber(0); }
inline void* own_identity() { return __tsan_get_current_fiber(); }
inline void end_identity(void* identity) { __tsan_destroy_fiber(identity); }
inline void take_identity(void* identity) {
  __tsan_switch_to_fiber(identity, __tsan_switch_to_fiber_no_sync);
}
// Tokens are addresses to the sanitizer; a ring of them, long enough that none is in use twice.
inline void* address_of(std::uint64_t token) {
  static std::array<std::uint64_t, 1U << 16U> addresses;
  return &addresses[token % addresses.size()];
}
inline void release(std::uint64_t token) { __tsan_release(address_of(token)); }
inline void acquire(std::uint64_t token) { __tsan_acquire(address_of(token)); }
#else
inline constexpr bool kRaces = false;
inline void* new_identity() { return nullptr; }
inline void* own_identity() { return nullptr; }
inline void end_identity(void* /*identity*/) {}
inline void take_identity(void* /*identity*/) {}
inline void release(std::uint64_t /*token*/) {}
inline void acquire(std::uint64_t /*token*/) {}
#endif

// Memory from the operating system, so that no sanitizer keeps a history of it.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes)
      : data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        bytes_(bytes) {
    if (data_ == MAP_FAILED) std::abort();
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&&) = delete;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    allow(data_, bytes_);
    munmap(data_, bytes_);
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

}  // namespace kv::fiber
