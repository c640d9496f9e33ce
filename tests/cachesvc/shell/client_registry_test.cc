#include "cachesvc/shell/client_registry.h"

#include <gtest/gtest.h>

#include "cachesvc/shell/kernel_sources.h"
#include "cachesvc/shell/log.h"

namespace kv::shell {
namespace {

ClientRegistry::Client client_with(std::uint64_t secret) {
  ClientRegistry::Client client;
  client.secret = {secret, secret + 1};
  return client;
}

TEST(ClientRegistry, IdsCountUpFromTheFirstAndAreNotUsedAgain) {
  ClientRegistry clients(4, 4, ClientId(1'000));
  EXPECT_EQ(clients.add(client_with(1)).value(), ClientId(1'000));
  EXPECT_EQ(clients.add(client_with(2)).value(), ClientId(1'001));
  clients.remove(ClientId(1'001));
  EXPECT_EQ(clients.add(client_with(3)).value(), ClientId(1'002));
}

TEST(ClientRegistry, OnlyTheSecretOfAClientIsItsSecret) {
  ClientRegistry clients(4, 4, ClientId(1));
  const ClientId first = clients.add(client_with(10)).value();
  const ClientId second = clients.add(client_with(20)).value();
  EXPECT_EQ(clients.authenticate(first, {10, 11}).value(), clients.find(first));
  EXPECT_EQ(clients.authenticate(second, {10, 11}).error().code, ErrorCode::denied);
  EXPECT_EQ(clients.authenticate(first, {10, 0}).error().code, ErrorCode::denied);
  EXPECT_EQ(clients.authenticate(first, {0, 11}).error().code, ErrorCode::denied);
  EXPECT_EQ(clients.authenticate(ClientId(3), {10, 11}).error().code, ErrorCode::stale);
  clients.remove(first);
  EXPECT_EQ(clients.authenticate(first, {10, 11}).error().code, ErrorCode::stale);
}

TEST(ClientRegistry, HoldsNoMoreThanItsCapacity) {
  ClientRegistry clients(3, 3, ClientId(1));
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(clients.add(client_with(i)).has_value());
  EXPECT_EQ(clients.add(client_with(9)).error().code, ErrorCode::exhausted);
  clients.remove(ClientId(2));
  clients.remove(ClientId(2));  // unknown: nothing
  EXPECT_EQ(clients.size(), 2U);
  EXPECT_TRUE(clients.add(client_with(9)).has_value());
  EXPECT_EQ(clients.add(client_with(9)).error().field, "client.capacity");
}

TEST(ClientRegistry, OneUserCannotTakeAllOfTheCapacity) {
  ClientRegistry clients(4, 2, ClientId(1));
  const auto of_user = [](uid_t user) {
    ClientRegistry::Client client = client_with(1);
    client.user = user;
    return client;
  };
  const ClientId first = clients.add(of_user(7)).value();
  ASSERT_TRUE(clients.add(of_user(7)).has_value());
  const auto third = clients.add(of_user(7));
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code, ErrorCode::exhausted);
  EXPECT_EQ(third.error().field, "client.per_user");
  EXPECT_EQ(clients.size(), 2U);
  ASSERT_TRUE(clients.add(of_user(8)).has_value());
  clients.remove(first);
  EXPECT_TRUE(clients.add(of_user(7)).has_value());
  EXPECT_EQ(clients.add(of_user(7)).error().field, "client.per_user");
}

TEST(KernelSources, TimeDoesNotGoBackAndIdsDiffer) {
  const TimePoint before = boot_time_now();
  EXPECT_GE(boot_time_now(), before);
  EXPECT_NE(random_id(), random_id());
}

TEST(Log, ValuesThatAreNotPlainAreQuotedAndControlBytesEscaped) {
  EXPECT_EQ(format_event("ready", {{"dir", "/run/kv"}, {"count", std::uint64_t{7}}}),
            "event=ready dir=/run/kv count=7");
  EXPECT_EQ(format_event("x", {{"a", "two words"}, {"b", "say \"hi\""}, {"c", "l1\nl2\xff"}}),
            "event=x a=\"two words\" b=\"say \\\"hi\\\"\" c=\"l1\\x0al2\\xff\"");
  EXPECT_EQ(format_event("x", {{"empty", ""}}), "event=x empty=\"\"");
}

TEST(Log, WhatCanHappenAnyNumberOfTimesIsLoggedEverMoreRarely) {
  int logged = 0;
  for (std::uint64_t count = 0; count <= 1'000'000; ++count) logged += is_worth_logging(count);
  EXPECT_EQ(logged, 20);  // 1, 2, 4 ... 524,288
}

}  // namespace
}  // namespace kv::shell
