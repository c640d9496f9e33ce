// The program `cachesvc`, as a process of its own.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cachesvc/shell/commands.h"
#include "cachesvc/shell/unix_address.h"
#include "tests/cachesvc/shell/child_process.h"
#include "tests/cachesvc/shell/flip_a_byte.h"
#include "tests/cachesvc/shell/pool_client.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"
#include "tests/support/built_program.h"

namespace kv::tests {
namespace {

std::vector<std::string> command(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {built_program("cachesvc")};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

std::vector<std::string> serve(const TempDir& dir) {
  return command({"serve", "--dir", dir.path(), "--set", "device.bytes=64KiB", "--set",
                  "host.bytes=128KiB", "--set", "disk.bytes=4MiB"});
}

std::string ready_line(const TempDir& dir) {
  return "ready endpoint=ipc://" + dir.path() + "/service.sock dir=" + dir.path();
}

TEST(Program, ExitCodesAreThoseThatScriptsRelyOn) {
  EXPECT_EQ(shell::kExitOk, 0);
  EXPECT_EQ(shell::kExitFailed, 1);
  EXPECT_EQ(shell::kExitUsage, 2);
  EXPECT_EQ(shell::kExitCheck, 3);
}

TEST(Program, SaysReadyServesAndEndsCleanlyWhenAsked) {
  for (const int number : {SIGTERM, SIGINT}) {
    const TempDir dir;
    ChildProcess service(serve(dir));
    ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
    {
      TestClient client(dir.path(), false);
      EXPECT_EQ(client.hello().code(), wire::ErrorCode::ok);
    }
    const auto start = std::chrono::steady_clock::now();
    service.signal(number);
    EXPECT_EQ(service.wait(), 0) << service.errors();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_FALSE(std::filesystem::exists(dir.path() + "/service.sock"));
    EXPECT_FALSE(std::filesystem::exists(dir.path() + "/attach.sock"));
  }
}

TEST(Program, ASecondStartSaysAddressInUseAtOnceAndTheFirstGoesOn) {
  const TempDir dir;
  ChildProcess first(serve(dir));
  ASSERT_EQ(first.next_line(), ready_line(dir)) << first.errors();
  ChildProcess second(serve(dir));
  EXPECT_EQ(second.wait(), shell::kExitFailed);
  EXPECT_EQ(second.errors(), "error: address in use: another service runs on " + dir.path() +
                                 "; stop it, or give this one another --dir\n");
  TestClient client(dir.path(), false);
  EXPECT_EQ(client.hello().code(), wire::ErrorCode::ok);
}

TEST(Program, AKilledServiceStartsAgainWithWhatWasDurable) {
  const TempDir dir;
  TestClient* old = nullptr;
  std::unique_ptr<PoolClient> before;
  {
    ChildProcess service(serve(dir));
    ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
    before = std::make_unique<PoolClient>(dir.path());
    ASSERT_TRUE(before->is_ready());
    before->publish(1, 40, 7);
    EXPECT_EQ(before->client().flush()->body_as_FlushReply()->durable_blocks(), 2U);
    service.signal(SIGKILL);
    EXPECT_EQ(service.wait(), 128 + SIGKILL);
    old = &before->client();
  }
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/service.sock"));  // stale
  ChildProcess service(serve(dir));
  ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
  // The old client's socket connects again by itself: it is told that it belongs to another boot.
  const auto refused = old->status();
  EXPECT_EQ(refused.code(), wire::ErrorCode::stale);
  EXPECT_NE(refused->boot()->a(), old->ticket().boot_a);
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  ASSERT_TRUE(eventually([&] { return client.counter("recovered_blocks") == 2; }));
  const auto hit = client.admit_again(2, 40);
  EXPECT_EQ(hit.disk_tokens, 32U);
  EXPECT_TRUE(client.holds(hit.slots[0], 7));
  EXPECT_TRUE(client.holds(hit.slots[1], 8));
}

TEST(Program, AKilledClientsSlotsAreFreeAtOnce) {
  const TempDir dir;
  ChildProcess service(serve(dir));
  ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();  // this process has no threads yet
  if (child == 0) {
    PoolClient client(dir.path());
    const bool is_held =
        client.is_ready() &&
        client.client().open(1, std::vector<std::uint32_t>(50, 5)).code() == wire::ErrorCode::ok &&
        client.client().admit(1, 14).code() == wire::ErrorCode::ok;
    (void)!write(told[1], is_held ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(told[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  {
    TestClient observer(dir.path(), false);
    ASSERT_EQ(observer.hello().code(), wire::ErrorCode::ok);
    const auto held = [&] {
      return observer.status()->body_as_StatusReply()->tiers()->Get(0)->held();
    };
    EXPECT_EQ(held(), 4U);  // 50 + 14 tokens
    kill(child, SIGKILL);
    EXPECT_TRUE(eventually([&] { return held() == 0; }, std::chrono::seconds(5)));
    EXPECT_EQ(observer.counter("gone_clients"), 1U);
    EXPECT_EQ(observer.counter("expired_clients"), 0U);
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(told[0]);
  close(told[1]);
}

// Whoever inherited the connection asks just before the death, and is heard after it.
TEST(Program, ThePoolIsNotGivenInTheNameOfADeadProcess) {
  const TempDir dir;
  ChildProcess service(serve(dir));
  ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
  const int shared = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const AttachConnection connection(shared);
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();  // this process has no threads yet
  if (child == 0) {
    const sockaddr_un address = shell::unix_address(dir.path() + "/attach.sock");
    const bool is_connected =
        connect(shared, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    (void)!write(told[1], is_connected ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(told[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  ASSERT_EQ(connection.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  const auto living = connection.ask(wire::AttachKind::device_pool);
  EXPECT_GE(living.descriptor, 0);
  service.signal(SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(service.id(), &status, WUNTRACED), service.id());
  ASSERT_TRUE(WIFSTOPPED(status));
  connection.send(wire::AttachKind::device_pool);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  service.signal(SIGCONT);
  const auto dead = connection.receive();
  EXPECT_EQ(dead.descriptor, -1);
  EXPECT_TRUE(!dead.has_arrived || dead.code == wire::ErrorCode::stale);
  for (const int descriptor : {living.descriptor, dead.descriptor, told[0], told[1]}) {
    if (descriptor >= 0) close(descriptor);
  }
}

TEST(Program, ARegularFileAtTheSocketsPathIsAnErrorAndStays) {
  const TempDir dir;
  std::ofstream(dir.path() + "/attach.sock") << "mine";
  ChildProcess service(serve(dir));
  EXPECT_EQ(service.wait(), 1);
  EXPECT_EQ(service.errors(), "error: " + dir.path() +
                                  "/attach.sock exists and is no socket; move it away, or give "
                                  "another --dir\n");
  EXPECT_TRUE(std::filesystem::is_regular_file(dir.path() + "/attach.sock"));
}

TEST(Program, AConfigurationThatCannotBeServedIsUsage) {
  const TempDir dir;
  ChildProcess service(command({"serve", "--dir", dir.path(), "--set", "host.byte=1MiB"}));
  EXPECT_EQ(service.wait(), shell::kExitUsage);
  EXPECT_EQ(service.errors(),
            "error: host.byte: unknown key (command line); the nearest key is host.bytes\n");
  EXPECT_EQ(service.rest(), "");
}

TEST(Program, ASettingWithoutAValueAndAnEmptyDirectoryAreUsage) {
  const TempDir dir;
  ChildProcess setting(command({"serve", "--dir", dir.path(), "--set", "host.bytes"}));
  EXPECT_EQ(setting.wait(), shell::kExitUsage);
  EXPECT_NE(setting.errors().find("host.bytes has no value: write host.bytes=VALUE"),
            std::string::npos)
      << setting.errors();
  ChildProcess empty(command({"serve", "--dir", ""}), {"CACHESVC_DIR=" + dir.path()});
  EXPECT_EQ(empty.wait(), shell::kExitUsage);
  EXPECT_EQ(empty.errors(),
            "error: service.dir: \"\": the directory is empty (command line); give --dir DIR\n");
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/attach.sock"));
}

TEST(Program, ACorruptBlockIsOneWarningInTheLog) {
  const TempDir dir;
  {
    ChildProcess service(serve(dir));
    ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
    PoolClient client(dir.path());
    client.publish(1, 40, 7);
    ASSERT_EQ(client.client().flush().code(), wire::ErrorCode::ok);
    service.signal(SIGTERM);
    ASSERT_EQ(service.wait(), 0) << service.errors();
    EXPECT_EQ(service.errors().find("corrupt_blocks"), std::string::npos);
  }
  ASSERT_EQ(flip_a_byte(dir.path() + "/disk", PoolClient::pattern(8)), 1);
  ChildProcess service(serve(dir));
  ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  ASSERT_TRUE(eventually([&] { return client.counter("recovered_blocks") == 2; }));
  EXPECT_EQ(client.admit_again(2, 40).disk_tokens, 16U);
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait(), 0) << service.errors();
  const std::string log = service.errors();
  const std::string line = "level=warning event=corrupt_blocks tier=disk count=1\n";
  const std::size_t place = log.find(line);
  ASSERT_NE(place, std::string::npos) << log;
  EXPECT_EQ(log.find("corrupt_blocks", place + line.size()), std::string::npos) << log;
  EXPECT_EQ(log.find("failed_blocks"), std::string::npos) << log;
}

TEST(Program, TheReadyLineSaysWhenTheDiskTierIsOffAgainstTheConfiguration) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() + "/disk");
  std::ofstream(dir.path() + "/disk/format") << "something else";
  ChildProcess service(serve(dir));
  EXPECT_EQ(service.next_line(), ready_line(dir) + " disk=off reason=corrupt");
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait(), 0) << service.errors();
  auto arguments = serve(dir);
  arguments.insert(arguments.end(), {"--set", "disk.bytes=0"});
  ChildProcess without(arguments);
  EXPECT_EQ(without.next_line(), ready_line(dir)) << "off because it was asked for";
}

TEST(Program, ClientsThatComeAndGoAreLoggedForDebuggingOnly) {
  for (const std::string level : {"info", "debug"}) {
    const TempDir dir;
    auto arguments = serve(dir);
    arguments.insert(arguments.end(), {"--set", "service.log_level=" + level});
    ChildProcess service(arguments);
    ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
    {
      TestClient client(dir.path(), false);
      EXPECT_EQ(client.hello().code(), wire::ErrorCode::ok);
    }
    service.signal(SIGTERM);
    EXPECT_EQ(service.wait(), 0) << service.errors();
    EXPECT_EQ(service.errors().find("event=client_attached") != std::string::npos, level == "debug")
        << service.errors();
    EXPECT_NE(service.errors().find("event=ended"), std::string::npos) << service.errors();
  }
}

TEST(Program, ATierThatHoldsNoBlockOfTheLayoutIsAWarningInTheLog) {
  const TempDir dir;
  auto arguments = serve(dir);
  arguments.insert(arguments.end(), {"--set", "host.bytes=4KiB"});
  ChildProcess service(arguments);
  ASSERT_EQ(service.next_line(), ready_line(dir)) << service.errors();
  {
    TestClient client(dir.path(), false);
    EXPECT_EQ(client.hello().code(), wire::ErrorCode::ok);
    TestLayout layout;
    layout.block_tokens = 128;  // of 64 bytes each
    EXPECT_EQ(client.attach_pool(layout).code(), wire::ErrorCode::ok);
  }
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait(), 0) << service.errors();
  const std::string log = service.errors();
  for (const char* said :
       {"event=tier_off tier=host reason=\"one block is larger than the tier\" tier_bytes=4096 "
        "block_bytes=8192",
        "event=tier_off tier=disk reason=\"blocks reach the disk through the host tier\" "
        "tier_bytes=4194304 block_bytes=8192"}) {
    EXPECT_NE(log.find(said), std::string::npos) << log;
  }
}

TEST(Program, ConfigCheckAndShowFollowTheSameSources) {
  const TempDir dir;
  ChildProcess good(command({"config", "check", "--dir", dir.path()}));
  EXPECT_EQ(good.rest(), "ok\n");
  EXPECT_EQ(good.wait(), 0) << good.errors();
  ChildProcess bad(command({"config", "check", "--dir", dir.path(), "--json"}),
                   {"CACHESVC_DISK__IO=slow"});
  const auto problems = nlohmann::json::parse(bad.rest());
  EXPECT_EQ(bad.wait(), shell::kExitCheck);
  EXPECT_EQ(problems["ok"], false);
  EXPECT_EQ(problems["problems"][0]["key"], "disk.io");
  ChildProcess show(command({"config", "show", "--dir", dir.path(), "--json"}),
                    {"CACHESVC_DISK__IO=plain"});
  const auto shown = nlohmann::json::parse(show.rest());
  EXPECT_EQ(show.wait(), 0) << show.errors();
  EXPECT_EQ(shown["disk.io"]["value"], "plain");
  EXPECT_EQ(shown["disk.io"]["origin"], "environment");
  EXPECT_EQ(shown["service.dir"]["value"], dir.path());
}

TEST(Program, HelpOfEveryCommandThatTakesSettingsListsTheKeys) {
  const std::vector<std::vector<std::string>> commands = {
      {"serve", "--help"}, {"config", "show", "--help"}, {"config", "check", "--help"}};
  for (const auto& arguments : commands) {
    ChildProcess help(command(arguments));
    const std::string text = help.rest();
    EXPECT_EQ(help.wait(), 0) << help.errors();
    for (const char* line : {"device.bytes (size, 64MiB)", "client.lease (duration, 10s)",
                             "CACHESVC_SECTION__KEY", "cachesvc config show"}) {
      EXPECT_NE(text.find(line), std::string::npos) << line << " in\n" << text;
    }
  }
}

TEST(Program, MoreMemoryThanTheMachineHasIsRefusedBeforeAnythingIsMade) {
  const TempDir temp;
  const std::string dir = temp.path() + "/service";
  ChildProcess service(command({"serve", "--dir", dir, "--set", "device.bytes=1000TiB"}));
  EXPECT_EQ(service.rest(), "");
  EXPECT_EQ(service.wait(), shell::kExitUsage);
  const std::string said = service.errors();
  EXPECT_TRUE(said.starts_with("error: device.bytes: device.bytes and host.bytes together want "))
      << said;
  EXPECT_TRUE(said.ends_with("; lower device.bytes\n")) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_FALSE(std::filesystem::exists(dir));
}

TEST(Program, APoolThatTheSystemDoesNotGiveIsOneErrorAndNoHalfService) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory does not fit into the limit that this test sets";
#endif
  const TempDir dir;
  const std::string limited =
      "ulimit -v 1000000 && exec \"$0\" serve --dir \"$1\" "
      "--set device.bytes=1GiB --set host.bytes=1MiB --set disk.bytes=0";
  ChildProcess service({"/bin/sh", "-c", limited, built_program("cachesvc"), dir.path()});
  EXPECT_EQ(service.rest(), "");
  EXPECT_EQ(service.wait(), shell::kExitFailed);
  EXPECT_EQ(service.errors(),
            "error: the limit of memory (ulimit -v) is 976.5MiB, and a service needs 1.0GiB of "
            "addresses beside device.bytes and host.bytes, 1.0GiB together; raise the limit, or "
            "lower device.bytes or host.bytes\n");
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/service.sock"));
  ChildProcess next(serve(dir));
  EXPECT_EQ(next.next_line(), ready_line(dir)) << next.errors();
}

TEST(Program, ADirectoryThatCannotBeMadeIsNamed) {
  const TempDir temp;
  std::ofstream(temp.path() + "/file") << "x";
  const std::string dir = temp.path() + "/file/service";
  ChildProcess service(command({"serve", "--dir", dir}));
  EXPECT_EQ(service.rest(), "");
  EXPECT_EQ(service.wait(), shell::kExitFailed);
  EXPECT_EQ(service.errors(), "error: " + dir +
                                  " cannot be made: Not a directory; give --dir a "
                                  "directory that this user may make\n");
}

TEST(Program, WhatItDoesNotKnowIsNamedAndIsUsage) {
  const auto expect_usage = [](const std::vector<std::string>& arguments, const std::string& line) {
    ChildProcess program(command(arguments));
    EXPECT_EQ(program.rest(), "");
    EXPECT_EQ(program.wait(), shell::kExitUsage);
    EXPECT_EQ(program.errors(), "error: " + line + "\n");
  };
  const std::string commands = "commands: serve, version, config; see cachesvc --help";
  expect_usage({"serv"}, "unknown command serv; " + commands);
  expect_usage({"help"}, "unknown command help; " + commands);
  expect_usage({}, "name a command: serve, version, config; see cachesvc --help");
  expect_usage({"--bogus"}, "unknown option --bogus; see cachesvc --help");
  expect_usage({"serve", "now"}, "unexpected argument now; see cachesvc serve --help");
  expect_usage({"serve", "--bogus"}, "unknown option --bogus; see cachesvc serve --help");
  expect_usage({"serve", "--dir"}, "--dir: 1 required TEXT missing; see cachesvc serve --help");
  expect_usage({"config"}, "name a command: show, check; see cachesvc config --help");
  expect_usage({"config", "list"},
               "unknown command config list; commands: show, check; see cachesvc config --help");
  expect_usage({"config", "show", "all"},
               "unexpected argument all; see cachesvc config show --help");
}

TEST(Program, VersionIsOneLineHoweverItIsAsked) {
  for (const char* asked : {"version", "--version"}) {
    ChildProcess version(command({asked}));
    const std::string line = version.rest();
    EXPECT_EQ(version.wait(), 0) << version.errors();
    EXPECT_TRUE(line.starts_with("cachesvc ") && line.ends_with("\n")) << line;
    EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  }
}

}  // namespace
}  // namespace kv::tests
