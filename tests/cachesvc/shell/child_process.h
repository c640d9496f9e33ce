// A program run by a test, with its standard output; killed with the value.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

namespace kv::tests {

class ChildProcess {
 public:
  // Runs `arguments[0]`, with these variables besides the environment ("NAME=VALUE").
  explicit ChildProcess(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& variables = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&&) = delete;
  ChildProcess& operator=(ChildProcess&&) = delete;

  [[nodiscard]] pid_t id() const { return id_; }
  // The next line of its output; empty at the end of it, or when none comes within 20 s.
  [[nodiscard]] std::string next_line();
  // Everything until it closes its output.
  [[nodiscard]] std::string rest();
  [[nodiscard]] std::string errors();  // what it wrote to standard error; after wait()
  void signal(int number) const;
  // Its exit code; 128 + n when signal n ended it; -1 when it runs after 20 s.
  [[nodiscard]] int wait();

 private:
  [[nodiscard]] bool read_more();
  pid_t id_ = -1;
  int output_ = -1;
  int errors_ = -1;
  std::string buffer_;
  int status_ = -1;
  bool is_over_ = false;
};

}  // namespace kv::tests
