#include "cachesvc/shell/socket_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cachesvc/shell/unix_address.h"
#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::shell {
namespace {

namespace fs = std::filesystem;

SocketFile listening(const std::string& path) {
  auto made = SocketFile::listen(path, SOCK_STREAM, 8);
  EXPECT_TRUE(made.has_value());
  return made ? *std::move(made) : SocketFile();
}

bool can_connect(const std::string& path) {
  const FileDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = unix_address(path);
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

TEST(SocketFile, IsForItsUserAndGroupAndGoesWithTheValue) {
  const tests::TempDir dir;
  const std::string path = dir.path() + "/s";
  {
    const SocketFile file = listening(path);
    EXPECT_TRUE(can_connect(path));
    struct stat status{};
    ASSERT_EQ(lstat(path.c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 0777U, 0660U);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(SocketFile, AnotherOneAtItsPathStays) {
  const tests::TempDir dir;
  const std::string path = dir.path() + "/s";
  auto first = std::make_unique<SocketFile>(listening(path));
  fs::remove(path);
  const SocketFile second = listening(path);
  first.reset();
  EXPECT_TRUE(can_connect(path));
}

TEST(SocketFile, AFileAtItsPathStays) {
  const tests::TempDir dir;
  const std::string path = dir.path() + "/s";
  {
    const SocketFile file = listening(path);
    fs::remove(path);
    std::ofstream(path) << "precious";
  }
  std::ifstream file(path);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(file)), {}), "precious");
}

TEST(SocketFile, AMovedValueIsOneSocketStill) {
  const tests::TempDir dir;
  const std::string path = dir.path() + "/s";
  const std::string other = dir.path() + "/other";
  SocketFile kept = listening(other);
  {
    SocketFile file = listening(path);
    SocketFile moved(std::move(file));
    EXPECT_TRUE(can_connect(path));
    kept = std::move(moved);
  }
  EXPECT_FALSE(fs::exists(other)) << "what was assigned over has ended";
  EXPECT_TRUE(can_connect(path));
}

TEST(SocketFile, WhatIsWrongWithThePlaceIsSaid) {
  const tests::TempDir dir;
  const std::string path = dir.path() + "/s";
  std::ofstream(path) << "mine";
  const auto reason = [](const std::string& at) {
    const auto made = SocketFile::listen(at, SOCK_STREAM, 8);
    return made ? std::string() : std::string(made.error().reason);
  };
  EXPECT_EQ(reason(path), "a file is there");
  EXPECT_TRUE(fs::is_regular_file(path));
  EXPECT_EQ(reason(dir.path() + "/none/s"), "its directory does not exist");
  EXPECT_EQ(reason(path + "/s"), "its directory does not exist");
}

}  // namespace
}  // namespace kv::shell
