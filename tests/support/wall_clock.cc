// A library to preload (LD_PRELOAD) that shifts the wall clock of a program: CLOCK_REALTIME, and
// what is derived from it, by the nanoseconds in the file that KV_WALL_CLOCK names. The file is
// mapped, so that the shift changes while the program runs. All other clocks stay as they are.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// Null where the variable or the file is not there: nothing is shifted.
const std::atomic<std::int64_t>* map_shift() {
  const char* const path = std::getenv("KV_WALL_CLOCK");
  if (path == nullptr) return nullptr;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const base = mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return base == MAP_FAILED ? nullptr : static_cast<const std::atomic<std::int64_t>*>(base);
}

std::int64_t shift() {
  static const std::atomic<std::int64_t>* const mapped = map_shift();
  return mapped == nullptr ? 0 : mapped->load(std::memory_order_relaxed);
}

bool is_wall_clock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

int shifted(clockid_t clock, timespec* now) {
  const auto failed = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (failed != 0 || !is_wall_clock(clock)) return failed;
  const std::int64_t all = now->tv_sec * kSecond + now->tv_nsec + shift();
  now->tv_sec = all / kSecond;
  now->tv_nsec = all % kSecond;
  return 0;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept { return shifted(clock, now); }

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
  timespec exact{};
  const int failed = shifted(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1'000;
  return failed;
}

time_t time(time_t* now) noexcept {
  timespec exact{};
  (void)shifted(CLOCK_REALTIME, &exact);
  if (now != nullptr) *now = exact.tv_sec;
  return exact.tv_sec;
}

}  // extern "C"
