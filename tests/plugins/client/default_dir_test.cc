#include "plugins/client/default_dir.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace kv::client {
namespace {

class DefaultDir : public testing::Test {
 protected:
  DefaultDir() {
    for (const char* name : {"CACHESVC_SERVICE__DIR", "CACHESVC_DIR", "XDG_RUNTIME_DIR", "HOME"})
      unsetenv(name);
  }
};

TEST_F(DefaultDir, IsTheFirstOfFourVariablesThatIsSet) {
  EXPECT_EQ(default_dir().error().code, ErrorCode::unavailable);
  setenv("HOME", "/h", 1);
  EXPECT_EQ(default_dir().value(), "/h/.cache/cachesvc");
  setenv("XDG_RUNTIME_DIR", "/x", 1);
  EXPECT_EQ(default_dir().value(), "/x/cachesvc");
  setenv("CACHESVC_DIR", "", 1);
  EXPECT_EQ(default_dir().value(), "/x/cachesvc");
  setenv("CACHESVC_DIR", "/own", 1);
  EXPECT_EQ(default_dir().value(), "/own");
  setenv("CACHESVC_SERVICE__DIR", "/named", 1);
  EXPECT_EQ(default_dir().value(), "/named");
}

TEST_F(DefaultDir, HoldsBothSocketsUnlessAnEndpointNamesOne) {
  const auto in_dir = find_addresses("/d", "");
  ASSERT_TRUE(in_dir);
  EXPECT_EQ(in_dir->service, "ipc:///d/service.sock");
  EXPECT_EQ(in_dir->attach, "/d/attach.sock");
  const auto named = find_addresses("/d", "ipc:///e/f/own.sock");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->service, "ipc:///e/f/own.sock");
  EXPECT_EQ(named->attach, "/e/f/attach.sock");
  const auto relative = find_addresses("", "ipc://own.sock");
  ASSERT_TRUE(relative);
  EXPECT_EQ(relative->attach, "./attach.sock");
}

TEST_F(DefaultDir, RefusesOtherTransportsAndPathsThatNoSocketCanHave) {
  EXPECT_EQ(find_addresses("", "tcp://127.0.0.1:5").error().code, ErrorCode::unsupported);
  // "/service.sock" takes 13 of the 107 bytes.
  EXPECT_TRUE(find_addresses(std::string(94, 'd'), ""));
  EXPECT_EQ(find_addresses(std::string(95, 'd'), "").error().code, ErrorCode::too_large);
}

}  // namespace
}  // namespace kv::client
