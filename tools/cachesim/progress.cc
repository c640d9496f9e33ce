#include "tools/cachesim/progress.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

namespace kv::cachesim {

Progress::Progress() : on_(isatty(STDERR_FILENO) == 1), last_(std::chrono::steady_clock::now()) {}

void Progress::report(std::uint64_t done, std::uint64_t total) {
  constexpr std::chrono::milliseconds kBetween(200);
  if (!on_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kBetween) return;
  last_ = now;
  shown_ = true;
  const double percent =
      100.0 * static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  std::fprintf(stderr, "\r\033[K%s: %.0f%%", what_.c_str(), percent);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace kv::cachesim
