// The program `cachesvc` and the files that others take away or leave to it.
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cachesvc/shell/child_process.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"

namespace kv::tests {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> serve(const std::string& dir) {
  return {std::string(KV_BINARY_DIR) + "/bin/cachesvc",
          "serve",
          "--dir",
          dir,
          "--set",
          "device.bytes=64KiB",
          "--set",
          "host.bytes=128KiB",
          "--set",
          "disk.bytes=0"};
}

// The files of a service that runs are taken away, so that another one may start there.
void expect_successor_is_left_alone(const std::function<void(const std::string& dir)>& take_away) {
  const TempDir temp;
  const std::string dir = temp.path() + "/service";
  ChildProcess first(serve(dir));
  ASSERT_TRUE(first.next_line().starts_with("ready ")) << first.errors();
  take_away(dir);
  ChildProcess second(serve(dir));
  ASSERT_TRUE(second.next_line().starts_with("ready ")) << second.errors();
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_TRUE(fs::is_socket(dir + "/service.sock"));
  EXPECT_TRUE(fs::is_socket(dir + "/attach.sock"));
  {
    TestClient client(dir, false);
    EXPECT_EQ(client.hello().code(), wire::ErrorCode::ok);
  }
  second.signal(SIGTERM);
  EXPECT_EQ(second.wait(), 0) << second.errors();
  EXPECT_FALSE(fs::exists(dir + "/service.sock"));
  EXPECT_FALSE(fs::exists(dir + "/attach.sock"));
}

TEST(ProgramPlaces, AServiceWhoseDirectoryWentLeavesTheSocketsOfItsSuccessor) {
  expect_successor_is_left_alone([](const std::string& dir) { fs::remove_all(dir); });
}

TEST(ProgramPlaces, AServiceWhoseDirectoryWasMovedLeavesTheSocketsOfItsSuccessor) {
  expect_successor_is_left_alone([](const std::string& dir) { fs::rename(dir, dir + ".moved"); });
}

TEST(ProgramPlaces, AServiceWhoseFilesWereRemovedLeavesTheSocketsOfItsSuccessor) {
  expect_successor_is_left_alone([](const std::string& dir) {
    for (const auto& entry : fs::directory_iterator(dir)) fs::remove(entry);
  });
}

}  // namespace
}  // namespace kv::tests
