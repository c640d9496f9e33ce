#include "tests/cachesvc/shell/child_process.h"

#include <array>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kv::tests {
namespace {

constexpr int kPatienceMs = 20'000;

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& variables) {
  std::vector<char*> argv, envp;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const std::string& variable : variables) envp.push_back(const_cast<char*>(variable.c_str()));
  for (char** entry = environ; *entry != nullptr; ++entry) envp.push_back(*entry);
  envp.push_back(nullptr);
  int pipe_ends[2] = {-1, -1};
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return;
  output_ = pipe_ends[0];
  errors_ = memfd_create("stderr", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors_, STDERR_FILENO);
  if (posix_spawn(&id_, argv[0], &actions, nullptr, argv.data(), envp.data()) != 0) id_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
}

ChildProcess::~ChildProcess() {
  if (id_ > 0 && !is_over_) {
    kill(id_, SIGKILL);
    waitpid(id_, &status_, 0);
  }
  if (output_ >= 0) close(output_);
  if (errors_ >= 0) close(errors_);
}

bool ChildProcess::read_more() {
  pollfd waiting{.fd = output_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, kPatienceMs) != 1) return false;
  std::array<char, 4'096> bytes{};
  const ssize_t count = read(output_, bytes.data(), bytes.size());
  if (count <= 0) return false;
  buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  return true;
}

std::string ChildProcess::next_line() {
  while (buffer_.find('\n') == std::string::npos) {
    if (!read_more()) return {};
  }
  const std::size_t end = buffer_.find('\n');
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

std::string ChildProcess::rest() {
  while (read_more()) {
  }
  return std::move(buffer_);
}

std::string ChildProcess::errors() {
  std::string text(static_cast<std::size_t>(lseek(errors_, 0, SEEK_END)), '\0');
  const ssize_t count = pread(errors_, text.data(), text.size(), 0);
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

void ChildProcess::signal(int number) const {
  if (id_ > 0 && !is_over_) kill(id_, number);
}

int ChildProcess::wait() {
  if (id_ <= 0) return -1;
  if (!is_over_) {
    const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, id_, 0));
    pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, kPatienceMs);
    close(descriptor);
    if (ready != 1) return -1;
    waitpid(id_, &status_, 0);
    is_over_ = true;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

}  // namespace kv::tests
