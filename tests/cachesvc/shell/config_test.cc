#include "cachesvc/shell/config.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cachesvc/shell/config_show.h"
#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::shell {
namespace {

using tests::TempDir;

std::string write_file(const TempDir& dir, const std::string& text) {
  const std::string path = dir.path() + "/cachesvc.toml";
  std::ofstream(path) << text;
  return path;
}

// What one problem says, as the user sees it.
std::string only_problem(const ConfigSources& sources) {
  const LoadedConfig loaded = load_config(sources);
  EXPECT_EQ(loaded.problems.size(), 1U) << problems_as_text(loaded);
  return problems_as_text(loaded);
}

ConfigSources with_dir() {
  ConfigSources sources;
  sources.flags = {{"service.dir", "/run/kv"}};
  return sources;
}

TEST(Config, DefaultsAreThoseOfTheTable) {
  const LoadedConfig loaded = load_config(with_dir());
  ASSERT_TRUE(loaded.ok()) << problems_as_text(loaded);
  const Config& config = loaded.config;
  EXPECT_EQ(config.dir, "/run/kv");
  EXPECT_EQ(config.endpoint, "ipc:///run/kv/service.sock");
  EXPECT_EQ(config.log_level, "info");
  EXPECT_EQ(config.device_bytes, 64U * 1024 * 1024);
  EXPECT_EQ(config.host_bytes, 256U * 1024 * 1024);
  EXPECT_EQ(config.disk_bytes, 1024U * 1024 * 1024);
  EXPECT_EQ(config.disk_io, "automatic");
  EXPECT_EQ(config.lease, std::chrono::seconds(10));
  EXPECT_EQ(config.credits, 64U);
  EXPECT_EQ(config.client_capacity, 1'024U);
  EXPECT_EQ(config.transfer_workers, 2U);
  EXPECT_TRUE(config.write_through);
  EXPECT_EQ(config.message_bytes, 1024U * 1024);
  EXPECT_EQ(config.sequences, 4'096U);
}

TEST(Config, AFlagWinsOverTheEnvironmentOverTheFileOverTheDefault) {
  const TempDir dir;
  ConfigSources sources = with_dir();
  sources.file = write_file(dir,
                            "[device]\nbytes = \"1MiB\"\n[host]\nbytes = \"1MiB\"\n"
                            "[disk]\nbytes = \"2MiB\"\n");
  sources.environment = {{"CACHESVC_DEVICE__BYTES", "2MiB"}, {"CACHESVC_HOST__BYTES", "2MiB"}};
  sources.flags.emplace_back("device.bytes", "3MiB");
  const LoadedConfig loaded = load_config(sources);
  ASSERT_TRUE(loaded.ok()) << problems_as_text(loaded);
  EXPECT_EQ(loaded.config.device_bytes, 3U << 20U);
  EXPECT_EQ(loaded.config.host_bytes, 2U << 20U);
  EXPECT_EQ(loaded.config.disk_bytes, 2U << 20U);
  EXPECT_EQ(loaded.config.credits, 64U);
  const auto json = nlohmann::json::parse(config_as_json(loaded));
  EXPECT_EQ(json["device.bytes"]["origin"], "flag");
  EXPECT_EQ(json["host.bytes"]["origin"], "environment");
  EXPECT_EQ(json["disk.bytes"]["origin"], "file");
  EXPECT_EQ(json["client.credits"]["origin"], "default");
}

TEST(Config, AnUnknownKeyNamesTheNearestWhereverItIsWritten) {
  const TempDir dir;
  ConfigSources file = with_dir();
  file.file = write_file(dir, "[device]\nbytes = \"1MiB\"\nbyte = 3\n");
  EXPECT_EQ(only_problem(file), "error: device.byte: unknown key (" + *file.file +
                                    ":3); the nearest key is device.bytes\n");

  ConfigSources environment = with_dir();
  environment.environment = {{"CACHESVC_CLIENT__LEASES", "1s"}};
  EXPECT_EQ(only_problem(environment),
            "error: CACHESVC_CLIENT__LEASES: unknown key (CACHESVC_CLIENT__LEASES); "
            "the nearest key is client.lease\n");

  ConfigSources flag = with_dir();
  flag.flags.emplace_back("limits.sequence", "1");
  EXPECT_EQ(only_problem(flag),
            "error: limits.sequence: unknown key (command line); "
            "the nearest key is limits.sequences\n");
}

TEST(Config, AKeyOutsideASectionIsUnknown) {
  const TempDir dir;
  ConfigSources sources = with_dir();
  sources.file = write_file(dir, "log_level = \"debug\"\n");
  EXPECT_EQ(only_problem(sources), "error: log_level: unknown key (" + *sources.file +
                                       ":1); the nearest key is service.log_level\n");
}

TEST(Config, SizesAndDurationsNeedUnits) {
  const TempDir dir;
  ConfigSources sources = with_dir();
  sources.file = write_file(dir, "[device]\nbytes = 64\n");
  EXPECT_EQ(only_problem(sources),
            "error: device.bytes: \"64\": a size needs a unit (B, KiB, MiB, GiB, TiB) (" +
                *sources.file + ":2); write it as in \"64MiB\"\n");
  ConfigSources lease = with_dir();
  lease.environment = {{"CACHESVC_CLIENT__LEASE", "10"}};
  EXPECT_EQ(only_problem(lease),
            "error: client.lease: \"10\": a duration needs a unit (ns, us, ms, s, m, h) "
            "(CACHESVC_CLIENT__LEASE); write it as in \"10s\"\n");
}

TEST(Config, AWrongSizeOrDurationIsAnsweredWithWhatWasMeant) {
  struct Case {
    std::string key, text, remedy;
  };
  const std::vector<Case> cases = {
      {"host.bytes", "1GB", "write \"1GiB\""},
      {"host.bytes", "1 GiB", "write \"1GiB\""},
      {"host.bytes", "1.5GiB", "write \"1536MiB\""},
      {"host.bytes", "512mb", "write \"512MiB\""},
      {"host.bytes", "0.5 k", "write \"512B\""},
      {"host.bytes", "1.3GiB", "write it as in \"256MiB\""},
      {"host.bytes", "1e9B", "write it as in \"256MiB\""},
      {"host.bytes", "GiB", "write it as in \"256MiB\""},
      {"host.bytes", "1XiB", "write it as in \"256MiB\""},
      {"host.bytes", "99999999999999999999GB", "write it as in \"256MiB\""},
      {"client.lease", "10 s", "write \"10s\""},
      {"client.lease", "10sec", "write \"10s\""},
      {"client.lease", "1.5s", "write \"1500ms\""},
      {"client.lease", "2min", "write \"2m\""},
      {"client.lease", "2days", "write it as in \"10s\""}};
  for (const Case& each : cases) {
    ConfigSources sources = with_dir();
    sources.flags.emplace_back(each.key, each.text);
    const LoadedConfig loaded = load_config(sources);
    ASSERT_EQ(loaded.problems.size(), 1U) << each.text;
    EXPECT_EQ(loaded.problems[0].remedy, each.remedy) << each.text;
  }
}

TEST(Config, APartThatIsMoreThanTheWholeIsRefusedUnlessItIsTheDefault) {
  ConfigSources sources = with_dir();
  sources.flags.emplace_back("client.capacity", "16");
  sources.flags.emplace_back("limits.prompt_tokens", "65536");
  EXPECT_TRUE(load_config(sources).ok());
  sources.flags.emplace_back("client.per_user", "17");
  EXPECT_EQ(only_problem(sources),
            "error: client.per_user: 17 is more than client.capacity, which is 16; lower "
            "client.per_user, or raise client.capacity\n");
  sources.flags.back() = {"client.prompt_tokens", "65537"};
  EXPECT_EQ(only_problem(sources),
            "error: client.prompt_tokens: 65537 is more than limits.prompt_tokens, which is 65536; "
            "lower client.prompt_tokens, or raise limits.prompt_tokens\n");
  sources.flags.back() = {"client.per_user", "16"};
  EXPECT_TRUE(load_config(sources).ok());
}

TEST(Config, AVariableThatLooksLikeASettingIsRefused) {
  ConfigSources sources = with_dir();
  sources.environment = {{"CACHESVC_HOST_BYTES", "1GiB"}};
  EXPECT_EQ(only_problem(sources),
            "error: CACHESVC_HOST_BYTES: no variable of a setting: it has no \"__\"; write "
            "CACHESVC_HOST__BYTES\n");
  sources.environment = {{"CACHESVC_SERVICE_DIR", "/x"}};
  EXPECT_EQ(only_problem(sources),
            "error: CACHESVC_SERVICE_DIR: no variable of a setting: it has no \"__\"; write "
            "CACHESVC_SERVICE__DIR\n");
  sources.environment = {{"CACHESVC_TEST", "1"}, {"CACHESVC_HOSTNAME", "x"}};
  EXPECT_TRUE(load_config(sources).ok());
}

TEST(Config, AnEmptyEndpointIsNoneThatIsLeftOut) {
  ConfigSources sources = with_dir();
  sources.environment = {{"CACHESVC_SERVICE__ENDPOINT", ""}};
  EXPECT_EQ(only_problem(sources),
            "error: service.endpoint: \"\": the endpoint is empty (CACHESVC_SERVICE__ENDPOINT); "
            "write \"ipc:///path/to/service.sock\", or leave it out\n");
}

TEST(Config, EveryProblemIsReportedNotOnlyTheFirst) {
  ConfigSources sources = with_dir();
  sources.flags.emplace_back("disk.io", "magic");
  sources.flags.emplace_back("transfer.write_through", "yes");
  sources.flags.emplace_back("client.credits", "0");
  sources.flags.emplace_back("client.lease", "10ms");
  const LoadedConfig loaded = load_config(sources);
  EXPECT_EQ(problems_as_text(loaded),
            "error: disk.io: \"magic\": is none of the choices (command line); "
            "use one of automatic, io_uring, plain\n"
            "error: client.lease: \"10ms\": out of range (command line); "
            "use a value from 1s to 1h\n"
            "error: client.credits: \"0\": out of range (command line); "
            "use a value from 1 to 1024\n"
            "error: transfer.write_through: \"yes\": is neither true nor false (command line); "
            "write true or false\n");
}

TEST(Config, ATierIsOffWithZeroAndOnlyWhereThatIsAllowed) {
  ConfigSources sources = with_dir();
  sources.flags.emplace_back("disk.bytes", "0");
  EXPECT_EQ(load_config(sources).config.disk_bytes, 0U);
  EXPECT_TRUE(load_config(sources).ok());
  sources.flags.emplace_back("device.bytes", "0");
  EXPECT_EQ(only_problem(sources),
            "error: device.bytes: \"0\": out of range (command line); "
            "use a value from 4KiB to 1024TiB\n");
}

TEST(Config, ADiskTierWithoutAHostTierContradictsItself) {
  ConfigSources sources = with_dir();
  sources.flags.emplace_back("host.bytes", "0");
  EXPECT_EQ(only_problem(sources),
            "error: disk.bytes: the disk tier is on (1GiB) but the host tier, through which it "
            "loads, is off; set host.bytes to at least 1MiB, or disk.bytes to 0\n");
  sources.flags.emplace_back("disk.bytes", "0");
  EXPECT_TRUE(load_config(sources).ok());
}

TEST(Config, TiersInMemoryFitTheMachine) {
  ConfigSources sources = with_dir();
  sources.memory.bytes = 320ULL << 20U;
  EXPECT_TRUE(load_config(sources).ok());  // 64 + 256 MiB exactly
  sources.memory.bytes -= 1;
  EXPECT_EQ(
      only_problem(sources),
      "error: host.bytes: device.bytes and host.bytes together want 320.0MiB, and the machine "
      "has 319.9MiB; lower host.bytes\n");
  sources.flags.emplace_back("device.bytes", "1GiB");
  sources.memory.bytes = (1'280ULL << 20U) - 1;
  EXPECT_EQ(only_problem(sources),
            "error: device.bytes: device.bytes and host.bytes together want 1342177280B, and the "
            "machine has 1342177279B; lower device.bytes\n")
      << "exact where rounding would hide the difference";
  sources.memory.bytes = (31ULL << 30U) + (300ULL << 20U);
  sources.flags.emplace_back("device.bytes", "900TiB");
  EXPECT_EQ(only_problem(sources),
            "error: device.bytes: device.bytes and host.bytes together want 900.0TiB, and the "
            "machine has 31.2GiB; lower device.bytes\n");
}

TEST(Config, TiersInMemoryFitTheControlGroupWhereThatAllowsLess) {
  ConfigSources sources = with_dir();
  sources.memory = {.bytes = 300ULL << 20U, .text = "the control group of this process allows"};
  EXPECT_EQ(only_problem(sources),
            "error: host.bytes: device.bytes and host.bytes together want 320.0MiB, and the "
            "control group of this process allows 300.0MiB; lower host.bytes\n");
}

TEST(Config, TheHelpHasEveryKeyWithItsTypeDefaultAndMeaning) {
  const std::string help = config_as_help();
  for (const ConfigKey& key : config_keys()) {
    EXPECT_NE(help.find("  " + std::string(key.name) + " (" +
                        std::string(config_type_name(key.type)) + ", "),
              std::string::npos)
        << key.name;
    EXPECT_NE(help.find(key.help), std::string::npos) << key.name;
  }
  EXPECT_NE(help.find("disk.io (choice, automatic)"), std::string::npos) << help;
  EXPECT_NE(help.find("automatic, io_uring, plain"), std::string::npos) << help;
}

TEST(Config, ASocketPathOf107BytesIsTheLongest) {
  ConfigSources sources = with_dir();
  const std::string longest = "/" + std::string(106, 'a');
  sources.flags.emplace_back("service.endpoint", "ipc://" + longest);
  EXPECT_TRUE(load_config(sources).ok());
  sources.flags.emplace_back("service.endpoint", "ipc://" + longest + "b");
  EXPECT_EQ(only_problem(sources),
            "error: service.endpoint: the socket path has 108 bytes, and the system allows 107; "
            "use a shorter service.dir or service.endpoint\n");
}

TEST(Config, ALongDirectoryIsToldForBothSockets) {
  ConfigSources sources;
  sources.flags = {{"service.dir", "/" + std::string(120, 'd')}};
  const LoadedConfig loaded = load_config(sources);
  ASSERT_EQ(loaded.problems.size(), 2U);
  EXPECT_EQ(loaded.problems[0].key, "service.endpoint");
  EXPECT_EQ(loaded.problems[1].message,
            "the path of DIR/attach.sock has 133 bytes, and the system allows 107");
}

TEST(Config, OnlyAbsoluteIpcEndpointsAreServed) {
  ConfigSources sources = with_dir();
  sources.flags.emplace_back("service.endpoint", "tcp://0.0.0.0:5555");
  EXPECT_EQ(only_problem(sources),
            "error: service.endpoint: \"tcp://0.0.0.0:5555\": only ipc endpoints are served; "
            "write \"ipc:///path/to/service.sock\"; other machines are not reached yet\n");
  sources.flags.emplace_back("service.endpoint", "ipc://here.sock");
  EXPECT_EQ(only_problem(sources),
            "error: service.endpoint: \"ipc://here.sock\": the path is not absolute; "
            "write \"ipc:///path/to/service.sock\"\n");
}

TEST(Config, TheDirectoryFollowsTheSameRuleAsClients) {
  ConfigSources sources;
  EXPECT_EQ(
      only_problem(sources),
      "error: service.dir: no directory is known: HOME is empty or not set; give --dir DIR\n");
  sources.environment = {{"HOME", "/users/kv"}};
  EXPECT_EQ(load_config(sources).config.dir, "/users/kv/.cache/cachesvc");
  sources.environment.emplace_back("XDG_RUNTIME_DIR", "/run/user/7");
  EXPECT_EQ(load_config(sources).config.dir, "/run/user/7/cachesvc");
  sources.environment.emplace_back("CACHESVC_DIR", "/srv/kv");
  EXPECT_EQ(load_config(sources).config.dir, "/srv/kv");
  sources.working_directory = "/start";
  sources.flags = {{"service.dir", "sub/../kv/"}};
  EXPECT_EQ(load_config(sources).config.dir, "/start/kv");
  sources.flags = {{"service.dir", ""}};
  EXPECT_EQ(only_problem(sources),
            "error: service.dir: \"\": the directory is empty (command line); give --dir DIR\n");
}

TEST(Config, ABrokenFileSaysWhere) {
  const TempDir dir;
  ConfigSources sources = with_dir();
  sources.file = write_file(dir, "[device]\nbytes = \n");
  const LoadedConfig loaded = load_config(sources);
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_EQ(loaded.problems[0].key, *sources.file);
  EXPECT_TRUE(loaded.problems[0].message.starts_with("line 2: ")) << loaded.problems[0].message;
  EXPECT_EQ(loaded.problems[0].remedy, "correct that line");
  sources.file = dir.path() + "/none.toml";
  EXPECT_EQ(only_problem(sources), "error: " + *sources.file +
                                       ": cannot be read; give the path of a readable TOML file\n");
  sources.file = dir.path();
  EXPECT_EQ(only_problem(sources),
            "error: " + dir.path() + ": is a directory; give the path of a readable TOML file\n");
}

TEST(Config, AnArrayOrADeeperTableIsNoValue) {
  const TempDir dir;
  ConfigSources sources = with_dir();
  sources.file = write_file(dir, "[device]\nbytes = [1, 2]\n");
  EXPECT_EQ(only_problem(sources), "error: device.bytes: holds no plain value (" + *sources.file +
                                       ":2); write text, a number, true or false\n");
}

TEST(Config, WhatIsShownIsReadBackTheSame) {
  const TempDir dir;
  ConfigSources sources = with_dir();
  sources.flags.emplace_back("client.lease", "1500ms");
  sources.flags.emplace_back("limits.message_bytes", "65537B");
  sources.flags.emplace_back("transfer.write_through", "false");
  const LoadedConfig first = load_config(sources);
  ASSERT_TRUE(first.ok());
  ConfigSources again;
  again.file = write_file(dir, config_as_toml(first));
  const LoadedConfig second = load_config(again);
  ASSERT_TRUE(second.ok()) << problems_as_text(second);
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(config_value_text(first.config, key), config_value_text(second.config, key));
  }
  EXPECT_EQ(second.config.lease, std::chrono::milliseconds(1'500));
}

TEST(Config, JsonHoldsNumbersAsNumbers) {
  const auto json = nlohmann::json::parse(config_as_json(load_config(with_dir())));
  EXPECT_EQ(json.size(), config_keys().size());
  EXPECT_EQ(json["device.bytes"]["value"], 67'108'864U);
  EXPECT_EQ(json["client.lease"]["value"], 10'000'000'000);
  EXPECT_EQ(json["transfer.write_through"]["value"], true);
  EXPECT_EQ(json["disk.io"]["value"], "automatic");
  EXPECT_EQ(json["device.bytes"]["type"], "size");
  EXPECT_EQ(json["device.bytes"]["unit"], "bytes");
  EXPECT_EQ(json["client.lease"]["unit"], "ns");
  EXPECT_FALSE(json["client.credits"].contains("unit")) << "a count says it itself";
}

TEST(Config, TheReadmeListsEveryKeyAsTheTableDoes) {
  std::ifstream file(std::string(KV_SOURCE_DIR) + "/cachesvc/shell/README.md");
  const std::string readme((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(readme.find(config_as_markdown()), std::string::npos) << config_as_markdown();
}

}  // namespace
}  // namespace kv::shell
