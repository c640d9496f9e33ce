// What the tests of this folder share: a service with settings, runner programs whose golden output
// is known, and waiting for facts. Owner: a test. Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tests/end_to_end/service_fixture.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::test {

// A bigger or smaller count than the default, from the environment.
[[nodiscard]] std::uint64_t environment_number(const char* name, std::uint64_t otherwise);

// Readable once the process is dead, even if nobody waited for it.
[[nodiscard]] FileDescriptor watch_process(pid_t process);
[[nodiscard]] bool wait_dead(const FileDescriptor& watched, std::chrono::milliseconds time);
// The letter of its state (R, S, T: stopped, ...); '?' when there is none.
[[nodiscard]] char state_of(pid_t process);

// The published continuations of the model (golden_greedy.json), made by another program.
struct Story {
  std::vector<Token> tokens;  // prompt and continuation
  std::size_t prompt_tokens = 0;
};
[[nodiscard]] const std::vector<Story>& stories();
[[nodiscard]] KvLayout stories_layout();

// `cachesvc-runner generate` over a part of a story: which tokens must come is known.
class RunnerProgram {
 public:
  struct Options {
    std::size_t story = 0;
    std::size_t prompt_tokens = 1;  // of the story
    std::size_t new_tokens = 1;     // prompt and these are not longer than the story
    std::string timeout = "20s";
    std::vector<std::string> environment = {};
  };
  RunnerProgram(const std::string& dir, const Options& options);

  [[nodiscard]] pid_t process() const { return program_.process(); }
  [[nodiscard]] bool is_dead() const { return wait_dead(watched_, std::chrono::milliseconds(0)); }
  [[nodiscard]] const FileDescriptor& watched() const { return watched_; }
  void signal(int number) const { program_.signal(number); }
  // What it may hold at one time, in blocks.
  [[nodiscard]] std::uint64_t blocks_max() const;
  // Ends with the golden tokens and exit code 0; says what was different, or "".
  [[nodiscard]] std::string golden_problem();
  [[nodiscard]] ProgramResult wait(std::chrono::milliseconds time = seconds(60)) {
    return program_.wait(time);
  }
  [[nodiscard]] const std::vector<Token>& golden() const { return golden_; }

 private:
  Options options_;
  std::vector<Token> golden_;
  Program program_;
  FileDescriptor watched_;
};
// Of what a runner printed with --json; nothing when it printed none.
[[nodiscard]] std::optional<std::vector<Token>> generated_tokens(const std::string& out);

class ChaosTest : public ServiceTest {
 protected:
  struct Settings {
    std::string device = "2MiB", host = "4MiB", disk = "256MiB";
    std::string lease = "10s";
    std::vector<std::string> environment = {};
  };
  // Waits until it listens.
  void serve(const Settings& settings);
  // A random part of a random story.
  [[nodiscard]] static RunnerProgram::Options random_run(Prng& prng, std::size_t new_tokens_max);
  [[nodiscard]] static client::ServiceStatus status_of(Client& client);
  // Asks until it is so; false after `time`. Counts how often it asked.
  [[nodiscard]] static bool eventually(
      Client& client, const std::function<bool(const client::ServiceStatus&)>& is_so,
      std::chrono::milliseconds time = seconds(30));
  [[nodiscard]] static std::uint64_t counter_of(const client::ServiceStatus& status,
                                                const std::string& name);
  // A run that was stopped while it decoded and held slots. Null: the test has failed.
  [[nodiscard]] std::unique_ptr<RunnerProgram> stop_in_the_middle(Client& client) const;
  // Nothing of anybody is left in the device tier; says what is, or "".
  [[nodiscard]] static std::string leftovers(const client::ServiceStatus& status);
};

}  // namespace kv::test
