// Runs built programs and waits for them, with what they print.
// Owner: a test. Threads: one caller. A program that takes longer than its time is killed.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace kv::test {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out, err;
  std::chrono::milliseconds time{0};
  bool timed_out = false;
};

// A program under way, with pipes for what it prints.
class Program {
 public:
  // arguments[0] is the path. `environment`: NAME=VALUE, in place of this process's values.
  explicit Program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});
  ~Program();  // kills what still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program(Program&&) = delete;
  Program& operator=(Program&&) = delete;

  // Until it ends; killed when it takes longer.
  ProgramResult wait(std::chrono::milliseconds time);
  // Until stdout has `lines` lines; false when it ended or the time is over.
  bool read_lines(std::size_t lines, std::chrono::milliseconds time);
  void signal(int number) const;
  [[nodiscard]] const std::string& out() const { return out_; }
  [[nodiscard]] const std::string& err() const { return err_; }
  [[nodiscard]] pid_t process() const { return process_; }

 private:
  // Reads what is there; false at the end of both pipes.
  bool read_some(std::chrono::steady_clock::time_point deadline);

  pid_t process_ = -1;
  int out_pipe_ = -1, err_pipe_ = -1;
  std::string out_, err_;
};

[[nodiscard]] ProgramResult run_program(const std::vector<std::string>& arguments,
                                        std::chrono::milliseconds time = std::chrono::seconds(30),
                                        const std::vector<std::string>& environment = {});

// The path of a built program.
[[nodiscard]] std::string built(const std::string& name);

}  // namespace kv::test
