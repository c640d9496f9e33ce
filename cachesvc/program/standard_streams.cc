#include "cachesvc/program/standard_streams.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

namespace kv::program {
namespace {

constexpr int kExitFailed = 1;

}  // namespace

void keep_standard_streams() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The kernel gives the lowest number that is free, and those below are taken. Programs that
    // this one starts get it too.
    if (open("/dev/null", O_RDWR) != number) std::_Exit(kExitFailed);
  }
}

int finish_output(int exit_code) {
  const bool is_flushed = std::fflush(stdout) == 0;
  if (is_flushed && std::ferror(stdout) == 0) return exit_code;
  std::fputs("error: standard output cannot be written; give it another file or disk\n", stderr);
  return exit_code == 0 ? kExitFailed : exit_code;
}

}  // namespace kv::program
