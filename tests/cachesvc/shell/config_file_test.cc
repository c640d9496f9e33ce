#include "cachesvc/shell/config_file.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::shell {
namespace {

ConfigFile read(const std::string& text) {
  const tests::TempDir dir;
  const std::string path = dir.path() + "/file.toml";
  std::ofstream(path, std::ios::binary) << text;
  return read_config_file(path);
}

TEST(ConfigFile, IsAFlatListOfKeysWithTheirTextAndLine) {
  const ConfigFile file = read(
      "# a comment\n[device]\nbytes = \"1MiB\"\n\n[client]\ncredits = 5\nflag = false\n"
      "ratio = 0.5\nday = 2024-01-01\n[client.deeper]\nx = 1\n");
  ASSERT_EQ(file.error, "");
  const auto find = [&](const std::string& key) {
    const auto found = std::ranges::find(file.entries, key, &ConfigFile::Entry::key);
    return found == file.entries.end() ? ConfigFile::Entry{} : *found;
  };
  EXPECT_EQ(file.entries.size(), 6U);
  EXPECT_EQ(find("device.bytes").text, "1MiB");
  EXPECT_EQ(find("device.bytes").line, 3U);
  EXPECT_EQ(find("client.credits").text, "5");
  EXPECT_EQ(find("client.credits").line, 6U);
  EXPECT_EQ(find("client.flag").text, "false");
  EXPECT_TRUE(find("client.ratio").is_plain);
  EXPECT_FALSE(find("client.day").is_plain);
  EXPECT_FALSE(find("client.deeper").is_plain);
}

TEST(ConfigFile, BytesThatAreNoTomlAreAnErrorNotACrash) {
  for (const std::string text : {"[", "a = ", "a = 1\na = 2\n", "\xff\xfe\n", "a = \"\\q\"\n",
                                 "[a]\n[a]\n", "a = 99999999999999999999\n"}) {
    EXPECT_NE(read(text).error, "") << text;
  }
  EXPECT_EQ(read("").error, "");
  EXPECT_NE(read(std::string(10'000, '[')).error, "");
}

TEST(ConfigFile, DepthIsNoWayToTheEndOfTheStack) {
  constexpr std::size_t kDepth = 500'000;
  EXPECT_NE(read("a = " + std::string(kDepth, '[')).error, "");
  std::string dotted;
  for (std::size_t i = 0; i < kDepth; ++i) dotted += "a.";
  for (const std::string& text :
       {"\n" + dotted + "a = 1\n", "\n[" + dotted + "a]\n", "\n\"a\".'b'." + dotted + "a = \"\""}) {
    EXPECT_EQ(read(text).error, "line 2: a key of so many parts is none of this file's");
  }
  // Dots in a text are no parts.
  EXPECT_EQ(read("[service]\ndir = \"/" + std::string(90, '.') + "\" # ." + dotted).error, "");
}

TEST(ConfigFile, AFileThatNeverEndsIsNotReadToItsEnd) {
  EXPECT_EQ(read_config_file("/dev/zero").error, "is longer than 1MiB");
  EXPECT_EQ(read(std::string(1 << 20, '\n')).error, "");
  EXPECT_EQ(read(std::string((1 << 20) + 1, '\n')).error, "is longer than 1MiB");
}

}  // namespace
}  // namespace kv::shell
