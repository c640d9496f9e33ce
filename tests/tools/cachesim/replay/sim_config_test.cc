// SIM.toml: what it sets, what it refuses, and what it means for a trace.
#include "tools/cachesim/replay/sim_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tools/cachesim/temp_folder.h"

namespace kv::cachesim {
namespace {

using kv::test::TempFolder;

LoadedSimConfig load(const std::string& text, const Settings& settings = {}) {
  const TempFolder folder;
  return load_sim_config(folder.file("sim.toml", text), settings);
}

Trace blocks_of(std::uint32_t tokens) {
  Trace trace;
  trace.block_tokens = tokens;
  return trace;
}

std::string all_of(const std::vector<shell::ConfigProblem>& problems) {
  std::string text;
  for (const auto& [key, message, remedy] : problems) {
    text += key;
    text += ": " + message;
    text += "; " + remedy + "\n";
  }
  return text;
}

TEST(SimConfig, DefaultsAreWhole) {
  const LoadedSimConfig loaded = load_sim_config(std::nullopt, {});
  EXPECT_TRUE(loaded.ok()) << all_of(loaded.problems);
  EXPECT_TRUE(resolve(loaded.config, blocks_of(512)).ok());
}

TEST(SimConfig, TheCommandLineWinsOverTheFileAndTheFileOverTheDefault) {
  const LoadedSimConfig loaded = load(
      "[device]\ncapacity = \"3GiB\"\n[host]\ncapacity = \"5GiB\"\n[compute]\nslowdown = 1.5\n",
      {{"host.capacity", "7GiB"}});
  ASSERT_TRUE(loaded.ok()) << all_of(loaded.problems);
  EXPECT_EQ(loaded.config.device_bytes, std::uint64_t{3} << 30U);
  EXPECT_EQ(loaded.config.host_bytes, std::uint64_t{7} << 30U);
  EXPECT_EQ(loaded.config.slowdown_thousandths, 1'500U);
  EXPECT_EQ(loaded.config.mode, "timed");
}

TEST(SimConfig, NamesEveryProblemWithItsPlaceAndARemedy) {
  const LoadedSimConfig loaded = load(
      "[host]\ncapacty = \"1GiB\"\ncapacity = 5\nlatency = \"10\"\nload_bandwidth = \"5GiB\"\n"
      "[compute]\nslowdown = \"fast\"\ntensor_parallel = 0\n[run]\nmode = \"clock\"\n"
      "[arrivals]\nin_flight = [1, 2]\n");
  const std::string text = all_of(loaded.problems);
  EXPECT_EQ(loaded.problems.size(), 8U) << text;
  for (const char* expected :
       {"host.capacty: unknown key (", "sim.toml:2", "the nearest key is host.capacity",
        "host.capacity: \"5\": a size needs a unit",
        "host.latency: \"10\": a duration needs a unit",
        "host.load_bandwidth: \"5GiB\": a bandwidth needs a unit", "compute.slowdown: \"fast\"",
        "compute.tensor_parallel: \"0\": out of range",
        "run.mode: \"clock\": is none of the choices", "use one of timed, counts",
        "arrivals.in_flight: needs one plain value"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
  }
}

TEST(SimConfig, RefusesAFileThatIsNoToml) {
  EXPECT_NE(all_of(load("[device\n").problems).find("line 1"), std::string::npos);
  EXPECT_FALSE(load_sim_config(std::string("/nowhere/sim.toml"), {}).ok());
  EXPECT_NE(all_of(load("", {{"device.capacit", "1GiB"}}).problems).find("(command line)"),
            std::string::npos);
}

TEST(SimConfig, TiersAreBlocksOfTheTrace) {
  const LoadedSimConfig loaded = load(
      "[device]\ncapacity = \"1GiB\"\n[host]\ncapacity = \"10GiB\"\n[disk]\ncapacity = \"1TiB\"\n");
  const ReplayOptions large = resolve(loaded.config, blocks_of(512)).options;
  EXPECT_EQ(large.block_bytes, std::uint64_t{64} << 20U);  // 128 KiB a token
  EXPECT_EQ(large.capacity_blocks, (std::array<std::uint32_t, 3>{16, 160, 16'384}));
  const ReplayOptions small = resolve(loaded.config, blocks_of(64)).options;
  EXPECT_EQ(small.capacity_blocks, (std::array<std::uint32_t, 3>{128, 1'280, 131'072}));
}

TEST(SimConfig, TheModelSaysTheBytesAndTheGpuItsMemory) {
  const LoadedSimConfig loaded = load("", {{"compute.model", "Llama-3.1-70B"},
                                           {"compute.gpu", "h200_sxm"},
                                           {"compute.tensor_parallel", "4"},
                                           {"compute.weights", "fp8"}});
  const ResolvedReplay resolved = resolve(loaded.config, blocks_of(512));
  ASSERT_TRUE(resolved.ok()) << all_of(resolved.problems);
  EXPECT_EQ(resolved.options.block_bytes, 512ULL * 320 * 1024);
  EXPECT_EQ(resolved.options.compute.token_bytes, 80ULL * 1024);  // of one device
  EXPECT_EQ(resolved.options.compute.memory_bytes_per_second, 4'800'000'000'000U);
  ASSERT_NE(resolved.options.compute.table, nullptr);
  EXPECT_EQ(resolved.options.compute.table->weights, "fp8");
  EXPECT_EQ(resolved.options.compute.table->gpu, "h200_sxm");
}

TEST(SimConfig, RefusesWhatCannotBe) {
  const auto problems = [](const Settings& settings) {
    const LoadedSimConfig loaded = load_sim_config(std::nullopt, settings);
    EXPECT_TRUE(loaded.ok()) << all_of(loaded.problems);
    return all_of(resolve(loaded.config, blocks_of(512)).problems);
  };
  EXPECT_NE(problems({{"device.capacity", "1MiB"}}).find("at least 64MiB"), std::string::npos);
  EXPECT_NE(problems({{"disk.capacity", "1TiB"}}).find("host.capacity"), std::string::npos);
  EXPECT_NE(problems({{"compute.model", "Llama-3.1-70B"}}).find("h100_sxm Llama-3.1-70B 4 fp8"),
            std::string::npos);
  EXPECT_NE(problems({{"compute.model", "x"}, {"compute.gpu", "none"}}).find("token_bytes"),
            std::string::npos);
  EXPECT_EQ(
      problems({{"compute.model", "x"}, {"compute.gpu", "none"}, {"compute.token_bytes", "1KiB"}}),
      "");
}

TEST(SimConfig, InCountsNothingTakesTime) {
  const LoadedSimConfig loaded = load("", {{"run.mode", "counts"}, {"host.capacity", "1TiB"}});
  const ReplayOptions options = resolve(loaded.config, blocks_of(512)).options;
  EXPECT_TRUE(options.counts_only);
  for (const LinkOptions& link : options.links) {
    EXPECT_EQ(link.bytes_per_second, 0U);
    EXPECT_EQ(link.latency, Duration(0));
  }
}

TEST(SimConfig, FactorsHaveThreeDecimalsAndBandwidthsASecond) {
  const auto factor = [](const char* text) {
    const auto value = parse_factor(text);
    return value ? *value : ~std::uint64_t{0};
  };
  EXPECT_EQ(factor("1"), 1'000U);
  EXPECT_EQ(factor("1.45"), 1'450U);
  EXPECT_EQ(factor("0.001"), 1U);
  EXPECT_EQ(factor("2.500000"), 2'500U);  // as TOML gives back a number
  for (const char* text : {"", ".", "1.", ".5", "-1", "1.0001", "1,5", "1.5x", "1e3"}) {
    const bool is_whole = std::string(text) == "1.";
    EXPECT_EQ(parse_factor(text).has_value(), is_whole) << text;
  }
  EXPECT_EQ(*parse_rate("50GiB/s"), std::uint64_t{50} << 30U);
  EXPECT_EQ(*parse_rate("0"), 0U);
  for (const char* text : {"", "5", "5GiB", "GiB/s", "5GiB/m", "/s"}) {
    EXPECT_FALSE(parse_rate(text).has_value()) << text;
  }
}

TEST(SimConfig, HelpHasEveryKey) {
  const std::string help = sim_keys_as_help();
  for (const SimKey& key : sim_keys()) {
    EXPECT_NE(help.find("  " + std::string(key.name) + " "), std::string::npos) << key.name;
    EXPECT_FALSE(key.help.empty());
  }
}

}  // namespace
}  // namespace kv::cachesim
