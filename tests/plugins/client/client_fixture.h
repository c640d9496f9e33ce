// What the tests of Client share: a directory, a service with a script, a client of it.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "plugins/client/client.h"
#include "tests/plugins/client/fake_service.h"
#include "tests/plugins/client/temporary_dir.h"

namespace kv::test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Seen = FakeService::Seen;
using Answers = std::optional<std::vector<Bytes>>;

inline Bytes status_reply(std::uint64_t request, std::uint32_t clients, wire::Id128 boot = {7, 9}) {
  ReplyParts parts;
  parts.boot = boot;
  parts.request = request;
  parts.body_type = wire::ReplyBody::StatusReply;
  parts.body = [clients](auto& builder) {
    return wire::CreateStatusReply(builder, 0, 0, clients).Union();
  };
  return reply_frame(parts);
}

class ClientTest : public testing::Test {
 protected:
  std::unique_ptr<FakeService> serve(FakeService::Script script,
                                     FakeService::Options options = {}) {
    options.dir = dir_.path();
    return std::make_unique<FakeService>(options, std::move(script));
  }
  std::unique_ptr<client::Client> attach() {
    client::Client::Options options;
    options.dir = dir_.path();
    options.name = "test";
    options.deadline = client::in(seconds(10));
    auto made = client::Client::connect(options);
    EXPECT_TRUE(made) << (made ? "" : made.error().reason);
    return made ? std::move(*made) : nullptr;
  }
  // How long a call took.
  template <class Call>
  static milliseconds time_of(Call call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  }

  TemporaryDir dir_;
};

}  // namespace kv::test
