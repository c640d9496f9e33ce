#include "cachesvc/shell/service_dir.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "cachesvc/shell/unix_address.h"
#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::shell {
namespace {

Config config_in(const std::string& dir) {
  Config config;
  config.dir = dir;
  config.endpoint = "ipc://" + dir + "/service.sock";
  return config;
}

std::string problem_of(const Config& config) {
  const auto taken = ServiceDir::take(config);
  const auto* problem = std::get_if<StartProblem>(&taken);
  return problem == nullptr ? "" : problem->message;
}

FileDescriptor bound_socket(const std::string& path, int type) {
  FileDescriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const sockaddr_un address = unix_address(path);
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

TEST(ServiceDir, IsMadeForItsUserOnly) {
  const tests::TempDir temp;
  const std::string dir = temp.path() + "/a/b";
  const auto taken = ServiceDir::take(config_in(dir));
  ASSERT_TRUE(std::holds_alternative<ServiceDir>(taken));
  struct stat status{};
  ASSERT_EQ(stat(dir.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
}

TEST(ServiceDir, ASecondServiceIsRefusedUntilTheFirstEnds) {
  const tests::TempDir temp;
  const Config config = config_in(temp.path());
  {
    const auto first = ServiceDir::take(config);
    ASSERT_TRUE(std::holds_alternative<ServiceDir>(first));
    EXPECT_EQ(problem_of(config), "address in use: another service runs on " + temp.path());
  }
  EXPECT_EQ(problem_of(config), "");
}

TEST(ServiceDir, AnEndpointIsHeldAcrossDirectories) {
  const tests::TempDir one, two;
  const auto first = ServiceDir::take(config_in(one.path()));
  ASSERT_TRUE(std::holds_alternative<ServiceDir>(first));
  Config second = config_in(two.path());
  second.endpoint = "ipc://" + one.path() + "/service.sock";
  EXPECT_EQ(problem_of(second),
            "address in use: another service runs on " + one.path() + "/service.sock");
}

TEST(ServiceDir, ASocketFileThatNobodyListensOnIsRemoved) {
  const tests::TempDir temp;
  {
    const auto left = bound_socket(temp.path() + "/service.sock", SOCK_STREAM);
  }
  {
    const auto left = bound_socket(temp.path() + "/attach.sock", SOCK_SEQPACKET);
  }
  EXPECT_EQ(problem_of(config_in(temp.path())), "");
  EXPECT_FALSE(std::filesystem::exists(temp.path() + "/service.sock"));
  EXPECT_FALSE(std::filesystem::exists(temp.path() + "/attach.sock"));
}

TEST(ServiceDir, TheEndKeepsTheDirectory) {
  const tests::TempDir temp;
  {
    const auto taken = ServiceDir::take(config_in(temp.path()));
    ASSERT_TRUE(std::holds_alternative<ServiceDir>(taken));
  }
  EXPECT_TRUE(std::filesystem::exists(temp.path() + "/service.lock"));
}

TEST(ServiceDir, ASocketThatSomeoneListensOnIsLeftAlone) {
  const tests::TempDir temp;
  for (const auto& [name, type] :
       {std::pair{"/service.sock", SOCK_STREAM}, std::pair{"/attach.sock", SOCK_SEQPACKET}}) {
    const std::string path = temp.path() + name;
    const auto socket = bound_socket(path, type);
    ASSERT_EQ(listen(socket.get(), 1), 0);
    EXPECT_EQ(problem_of(config_in(temp.path())),
              "address in use: another service runs on " + path);
    EXPECT_TRUE(std::filesystem::exists(path));
    std::filesystem::remove(path);
  }
}

TEST(ServiceDir, AFileThatIsNoSocketIsAProblemAndLeftAlone) {
  const tests::TempDir temp;
  const std::string path = temp.path() + "/service.sock";
  std::ofstream(path) << "precious";
  EXPECT_EQ(problem_of(config_in(temp.path())), path + " exists and is no socket");
  std::ifstream file(path);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(file)), {}), "precious");
}

TEST(ServiceDir, ADirectoryThatOthersCanWriteIsRefused) {
  const tests::TempDir temp;
  std::filesystem::permissions(temp.path(), std::filesystem::perms::all);
  EXPECT_EQ(problem_of(config_in(temp.path())), temp.path() + " can be written by others");
}

unsigned mode_of(const std::string& path) {
  struct stat status{};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 0777U;
}

TEST(ServiceDir, ADirectoryThatOthersMayEnterIsClosedWhenItIsTheServices) {
  const tests::TempDir temp;
  for (const mode_t mode : {0755, 0711, 0701}) {
    ASSERT_EQ(chmod(temp.path().c_str(), mode), 0);
    EXPECT_EQ(problem_of(config_in(temp.path())), "");  // empty at first, then with its lock
    EXPECT_EQ(mode_of(temp.path()), 0700U);
    EXPECT_TRUE(std::filesystem::exists(temp.path() + "/service.lock"));
  }
}

TEST(ServiceDir, ADirectoryThatOthersMayEnterIsRefusedWhenItHoldsOtherFiles) {
  const tests::TempDir temp;
  std::ofstream(temp.path() + "/page.html") << "x";
  ASSERT_EQ(chmod(temp.path().c_str(), 0755), 0);
  EXPECT_EQ(problem_of(config_in(temp.path())),
            temp.path() + " is open to others and holds other files than a service's");
  EXPECT_EQ(mode_of(temp.path()), 0755U);
  EXPECT_FALSE(std::filesystem::exists(temp.path() + "/service.lock"));
}

TEST(ServiceDir, AModeThatLetsTheGroupInStays) {
  const tests::TempDir temp;
  ASSERT_EQ(chmod(temp.path().c_str(), 0750), 0);
  EXPECT_EQ(problem_of(config_in(temp.path())), "");
  EXPECT_EQ(mode_of(temp.path()), 0750U);
}

TEST(ServiceDir, APathThatIsAFileIsRefused) {
  const tests::TempDir temp;
  const std::string path = temp.path() + "/file";
  std::ofstream(path) << "x";
  EXPECT_EQ(problem_of(config_in(path)), path + " is no directory");
}

TEST(ServiceDir, ALockThatIsASymbolicLinkIsNotFollowed) {
  const tests::TempDir temp;
  std::ofstream(temp.path() + "/target") << "x";
  std::filesystem::create_symlink(temp.path() + "/target", temp.path() + "/service.lock");
  EXPECT_NE(problem_of(config_in(temp.path())), "");
}

}  // namespace
}  // namespace kv::shell
