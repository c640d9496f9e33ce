#include "tests/chaos/chaos_fixture.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kv::test {
namespace {

std::filesystem::path model_folder() {
  return std::filesystem::path(KV_SOURCE_DIR) / "plugins/runner/models/stories260K";
}

std::vector<std::string> runner_arguments(const std::string& dir,
                                          const RunnerProgram::Options& options) {
  std::string prompt;
  for (std::size_t i = 0; i < options.prompt_tokens; ++i) {
    prompt += (i == 0 ? "" : ",") + std::to_string(stories()[options.story].tokens[i]);
  }
  return {built("cachesvc-runner"),
          "generate",
          "--json",
          "--model",
          model_folder().string(),
          "--dir",
          dir,
          "--timeout",
          options.timeout,
          "--prompt-tokens",
          prompt,
          "--max-tokens",
          std::to_string(options.new_tokens)};
}

}  // namespace

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

FileDescriptor watch_process(pid_t process) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

bool wait_dead(const FileDescriptor& watched, std::chrono::milliseconds time) {
  pollfd entry{.fd = watched.get(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(time.count())) == 1;
}

char state_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(')');  // of the name, which may have any letters
  return end == std::string::npos || end + 2 >= text.size() ? '?' : text[end + 2];
}

const std::vector<Story>& stories() {
  static const std::vector<Story> all_of_them = [] {
    nlohmann::json golden;
    std::ifstream(model_folder() / "golden_greedy.json") >> golden;
    std::vector<Story> all;
    for (const auto& entry : golden["cases"]) {
      Story story;
      story.tokens = entry["prompt_tokens"].get<std::vector<Token>>();
      story.prompt_tokens = story.tokens.size();
      for (const auto& token : entry["generated_tokens"]) story.tokens.push_back(token);
      all.push_back(std::move(story));
    }
    return all;
  }();
  return all_of_them;
}

// Of config.json beside the model.
KvLayout stories_layout() {
  KvLayout layout{.block_tokens = kBlockTokens, .groups = {}};
  layout.groups.push_back({.layer_count = 5, .kv_head_count = 4, .head_dim_k = 8, .head_dim_v = 8});
  return layout;
}

RunnerProgram::RunnerProgram(const std::string& dir, const Options& options)
    : options_(options),
      program_(runner_arguments(dir, options), options.environment),
      watched_(watch_process(program_.process())) {
  const auto& tokens = stories()[options.story].tokens;
  const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(options.prompt_tokens);
  golden_.assign(from, from + static_cast<std::ptrdiff_t>(options.new_tokens));
}

std::uint64_t RunnerProgram::blocks_max() const {
  return (options_.prompt_tokens + options_.new_tokens) / kBlockTokens + 1;
}

std::optional<std::vector<Token>> generated_tokens(const std::string& out) {
  const auto parsed = nlohmann::json::parse(out, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("generated_tokens")) return std::nullopt;
  return parsed["generated_tokens"].get<std::vector<Token>>();
}

std::string RunnerProgram::golden_problem() {
  const auto result = wait();
  const auto tokens = generated_tokens(result.out);
  if (result.exit_code == 0 && tokens == golden_) return {};
  std::string text = "story " + std::to_string(options_.story) + " from " +
                     std::to_string(options_.prompt_tokens) + ": exit code " +
                     std::to_string(result.exit_code) + ", stderr " + result.err;
  if (result.timed_out) text += ", it hung";
  if (tokens && tokens != golden_) text += ", other tokens: " + result.out;
  return text;
}

void ChaosTest::serve(const Settings& settings) {
  std::vector<std::string> environment = {
      "CACHESVC_DEVICE__BYTES=" + settings.device, "CACHESVC_HOST__BYTES=" + settings.host,
      "CACHESVC_DISK__BYTES=" + settings.disk, "CACHESVC_CLIENT__LEASE=" + settings.lease,
      // Nobody reads its log before it ends.
      "CACHESVC_SERVICE__LOG_LEVEL=error"};
  environment.insert(environment.end(), settings.environment.begin(), settings.environment.end());
  service_ = std::make_unique<Program>(
      std::vector<std::string>{built("cachesvc"), "serve", "--dir", dir_.path()}, environment);
  ASSERT_TRUE(service_->read_lines(1, seconds(30))) << service_->err();
}

RunnerProgram::Options ChaosTest::random_run(Prng& prng, std::size_t new_tokens_max) {
  RunnerProgram::Options options;
  options.story = prng.below(stories().size());
  const Story& story = stories()[options.story];
  const std::size_t length = story.tokens.size();
  options.prompt_tokens = story.prompt_tokens + prng.below(length / 2);
  const std::size_t most = std::min(new_tokens_max, length - options.prompt_tokens);
  options.new_tokens = most - prng.below(most / 2 + 1);
  return options;
}

client::ServiceStatus ChaosTest::status_of(Client& client) {
  auto status = client.status(in(seconds(20)));
  EXPECT_TRUE(status) << (status ? "" : status.error().reason);
  return status ? *status : client::ServiceStatus();
}

bool ChaosTest::eventually(Client& client,
                           const std::function<bool(const client::ServiceStatus&)>& is_so,
                           std::chrono::milliseconds time) {
  const auto deadline = in(time);
  while (true) {
    const auto status = client.status(in(seconds(20)));
    if (!status) return false;
    if (is_so(*status)) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    (void)poll(nullptr, 0, 1);  // between two questions; nothing hangs on the time
  }
}

std::uint64_t ChaosTest::counter_of(const client::ServiceStatus& status, const std::string& name) {
  for (const auto& entry : status.counters) {
    if (entry.name == name) return entry.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

std::unique_ptr<RunnerProgram> ChaosTest::stop_in_the_middle(Client& client) const {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const std::uint64_t before = counter_of(status_of(client), "generated_tokens");
    const std::uint32_t sequences = status_of(client).sequences;
    auto runner = std::make_unique<RunnerProgram>(
        dir_.path(), RunnerProgram::Options{.story = 0, .prompt_tokens = 20, .new_tokens = 200});
    EXPECT_TRUE(eventually(client, [&](const auto& now) {
      return counter_of(now, "generated_tokens") >= before + 20 || runner->is_dead();
    }));
    runner->signal(SIGSTOP);
    const auto deadline = in(seconds(20));
    while (state_of(runner->process()) == 'R' || state_of(runner->process()) == 'S') {
      if (std::chrono::steady_clock::now() > deadline) break;
    }
    if (state_of(runner->process()) == 'T' && status_of(client).sequences > sequences) {
      return runner;
    }
    runner->signal(SIGCONT);
    EXPECT_EQ(runner->golden_problem(), "");  // it was faster
  }
  ADD_FAILURE() << "no run could be stopped in its middle";
  return nullptr;
}

std::string ChaosTest::leftovers(const client::ServiceStatus& status) {
  const auto& device = status.tiers[tier_index(Tier::device)];
  const auto& host = status.tiers[tier_index(Tier::host)];
  std::string text;
  const auto add = [&text](const char* name, std::uint64_t count) {
    if (count > 0) text += std::string(name) + " " + std::to_string(count) + "; ";
  };
  add("sequences", status.sequences);
  add("device held", device.held);
  add("device fenced", device.fenced);
  add("device covered", device.covered);
  add("device lost", device.slots - device.free - device.cached - device.held - device.fenced);
  add("host held", host.held);
  add("host fenced", host.fenced);
  add("host covered", host.covered);
  add("host lost", host.slots - host.free - host.cached - host.held - host.fenced);
  add("transfers", status.transfers_in_flight);
  return text;
}

}  // namespace kv::test
