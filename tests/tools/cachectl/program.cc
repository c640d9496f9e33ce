#include "tests/tools/cachectl/program.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/check.h"
#include "tests/support/built_program.h"

namespace kv::test {
namespace {

using Clock = std::chrono::steady_clock;

void close_pipe(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto name = text.substr(0, text.find('=') + 1);
    const bool changed = std::ranges::any_of(
        changes, [name](const std::string& change) { return change.starts_with(name); });
    if (!changed) all.emplace_back(text);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  KV_CHECK(pipe2(out.data(), O_CLOEXEC) == 0 && pipe2(err.data(), O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  auto argument_texts = arguments;
  auto environment_texts = environment_with(environment);
  const int failed =
      posix_spawn(&process_, arguments[0].c_str(), &actions, nullptr,
                  pointers(argument_texts).data(), pointers(environment_texts).data());
  posix_spawn_file_actions_destroy(&actions);
  KV_CHECK(failed == 0);
  close(out[1]);
  close(err[1]);
  out_pipe_ = out[0];
  err_pipe_ = err[0];
}

Program::~Program() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  close_pipe(out_pipe_);
  close_pipe(err_pipe_);
}

void Program::signal(int number) const {
  if (process_ > 0) kill(process_, number);  // -1 would be everybody
}

bool Program::read_some(Clock::time_point deadline) {
  std::array<pollfd, 2> pipes{{{out_pipe_, POLLIN, 0}, {err_pipe_, POLLIN, 0}}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  (void)poll(pipes.data(), pipes.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
  for (std::size_t i = 0; i < 2; ++i) {
    if (pipes[i].revents == 0) continue;
    std::array<char, 4'096> bytes{};
    const ssize_t count = read(pipes[i].fd, bytes.data(), bytes.size());
    if (count <= 0) {
      close_pipe(i == 0 ? out_pipe_ : err_pipe_);
    } else {
      (i == 0 ? out_ : err_).append(bytes.data(), static_cast<std::size_t>(count));
    }
  }
  return out_pipe_ >= 0 || err_pipe_ >= 0;
}

bool Program::read_lines(std::size_t lines, std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  while (static_cast<std::size_t>(std::ranges::count(out_, '\n')) < lines) {
    if (Clock::now() >= deadline || !read_some(deadline)) return false;
  }
  return true;
}

ProgramResult Program::wait(std::chrono::milliseconds time) {
  const auto start = Clock::now();
  ProgramResult result;
  while (read_some(start + time)) {
    if (Clock::now() < start + time) continue;
    result.timed_out = true;
    kill(process_, SIGKILL);
    break;
  }
  int status = 0;
  KV_CHECK(waitpid(process_, &status, 0) == process_);
  process_ = -1;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  result.out = out_;
  result.err = err_;
  return result;
}

ProgramResult run_program(const std::vector<std::string>& arguments, std::chrono::milliseconds time,
                          const std::vector<std::string>& environment) {
  return Program(arguments, environment).wait(time);
}

std::string built(const std::string& name) { return tests::built_program(name); }

}  // namespace kv::test
