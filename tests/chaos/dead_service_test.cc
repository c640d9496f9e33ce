// What is left of dead and stopped services, seen by tools, clients and the next service.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/chaos/chaos_fixture.h"
#include "tests/chaos/load_client.h"

namespace kv::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class DeadService : public ChaosTest {
 protected:
  [[nodiscard]] LoadClient::Options load_options(const std::string& name = "load") const {
    return {
        .dir = dir_.path(), .name = name, .layout = stories_layout(), .fields = test_namespace()};
  }
  static void expect_one_error_line(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
  [[nodiscard]] std::size_t descriptor_count() const {
    const auto folder = "/proc/" + std::to_string(service_->process()) + "/fd";
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
};

// SCENARIOS DEAD-12
TEST_F(DeadService, AToolSaysSoInOneLineAndEndsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  kill_service();
  for (const char* command : {"status", "tree", "flush"}) {
    SCOPED_TRACE(command);
    const auto result = run_program({built("cachectl"), "--dir", dir_.path(), command});
    expect_one_error_line(result);
    EXPECT_LT(result.time, seconds(2) + seconds(8)) << "8 s for a busy machine";
  }
}

// SCENARIOS DEAD-12: here the sockets are open and nobody answers.
TEST_F(DeadService, AToolGivesUpOnAStoppedServiceByItsDeadline) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  service_->signal(SIGSTOP);
  const auto result = run_program({built("cachectl"), "--dir", dir_.path(), "status"});
  expect_one_error_line(result);
  EXPECT_LT(result.time, seconds(2) + seconds(8)) << "8 s for a busy machine";
  EXPECT_NE(result.err.find("busy or hung"), std::string::npos) << result.err;
  service_->signal(SIGCONT);
  const auto after = run_program({built("cachectl"), "--dir", dir_.path(), "status"});
  EXPECT_EQ(after.exit_code, 0) << after.err;
}

// SCENARIOS DEAD-08
TEST_F(DeadService, AfterACallThatCameTooLateTheNextOnesGetTheirOwnAnswers) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  LoadClient load(load_options());
  ASSERT_TRUE(load.attach());
  ASSERT_TRUE(load.run(prompt_of(1, 50)));
  const auto prompt = prompt_of(1, 50);
  service_->signal(SIGSTOP);
  const auto late = load.client().status(in(milliseconds(100)));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::deadline);
  service_->signal(SIGCONT);
  // A lookup, a status, a lookup: each is answered in kind, though the first answer comes late.
  for (int i = 0; i < 2; ++i) {
    const auto hits = load.lookup(prompt);
    ASSERT_TRUE(hits) << hits.error().reason;
    EXPECT_EQ(hits->hit_tokens, 48U);
    const auto status = load.status();
    ASSERT_TRUE(status) << status.error().reason;
    EXPECT_EQ(status->clients, 1U);
  }
}

// SCENARIOS DEAD-09
TEST_F(DeadService, ALookupDuringTheDeathFailsInTimeAndAfterItOnlyWhatSurvivedIsHit) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  LoadClient load(load_options());
  ASSERT_TRUE(load.attach());
  const auto durable = prompt_of(2, 50);
  const auto lost = prompt_of(3, 50);
  ASSERT_TRUE(load.run(durable));
  const auto flushed = load.flush();
  ASSERT_TRUE(flushed);
  ASSERT_EQ(flushed->durable_blocks, 3U);
  // Admitted and written, never published: only this process knows of it.
  const auto admission = load.begin(SequenceId(100), lost);
  ASSERT_TRUE(admission);
  load.compute(*admission, lost);

  kill_service();
  const auto during = load.lookup(durable);
  ASSERT_FALSE(during);
  EXPECT_EQ(during.error().code, ErrorCode::unavailable);
  EXPECT_LT(load.counts().worst_overrun, milliseconds(1)) << "long before its deadline";

  ASSERT_NO_FATAL_FAILURE(serve({}));
  EXPECT_FALSE(load.lookup(durable)) << "the old attachment is over";
  ASSERT_TRUE(load.attach());
  ASSERT_TRUE(eventually(load.client(), [](const auto& status) { return !status.recovering; }));
  EXPECT_EQ(load.lookup(durable)->hit_tokens, 48U);
  EXPECT_EQ(load.lookup(lost)->known_tokens, 0U);
  const auto account = load.run(durable);
  ASSERT_TRUE(account);
  EXPECT_EQ(account->hits(), 48U);
  EXPECT_EQ(load.counts().wrong_blocks, 0U);
  EXPECT_EQ(load.counts().right_blocks, 3U);
}

// SCENARIOS REC-07, CRASH-18: what a client still has of the dead service reaches no new one.
TEST_F(DeadService, HandlesOfTheDeadAreStaleAndItsMemoryIsNobodyElses) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  LoadClient old(load_options("old"));
  ASSERT_TRUE(old.attach());
  const auto prompt = prompt_of(4, 48);
  const auto held = old.begin(SequenceId(1), prompt);
  ASSERT_TRUE(held);
  old.compute(*held, prompt);
  const auto boot = old.client().boot();
  kill_service();
  ASSERT_NO_FATAL_FAILURE(serve({}));
  LoadClient fresh(load_options("new"));
  ASSERT_TRUE(fresh.attach());
  EXPECT_NE(fresh.client().boot(), boot);
  // The new service gives all its slots away; the old client's three blocks stay as they were.
  std::vector<SequenceId> all;
  for (std::uint64_t id = 1; id <= fresh.slot_count(); ++id) {
    const auto other = prompt_of(1'000 + id, kBlockTokens);
    const auto admission = fresh.begin(SequenceId(id), other, true);
    ASSERT_TRUE(admission) << admission.error().reason;
    fresh.compute(*admission, other);
    all.emplace_back(id);
  }
  for (std::size_t block = 0; block < 3; ++block) {
    const auto bytes = old.bytes_of(std::span(prompt).first((block + 1) * kBlockTokens));
    EXPECT_TRUE(std::ranges::equal(old.slot(held->slots[block]), bytes));
    // Nor does what it writes arrive anywhere.
    std::memset(old.slot(held->slots[block]).data(), 0xDD, bytes.size());
  }
  for (std::uint32_t slot = 0; slot < fresh.slot_count(); ++slot) {
    EXPECT_NE(fresh.slot(SlotId(slot))[0], std::byte{0xDD}) << "slot " << slot;
  }
  const auto finished = old.finish(SequenceId(1), prompt.size());
  ASSERT_FALSE(finished);
  EXPECT_TRUE(finished.error().code == ErrorCode::stale ||
              finished.error().code == ErrorCode::unavailable)
      << finished.error().reason;
  EXPECT_TRUE(fresh.free(all));
  EXPECT_EQ(fresh.lookup(prompt)->known_tokens, 0U);
}

// SCENARIOS CFG-09
TEST_F(DeadService, ASecondServiceIsRefusedAndTwoClientsOfOneNameAreTwo) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  const auto second = run_program({built("cachesvc"), "serve", "--dir", dir_.path()});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_TRUE(second.err.starts_with("error: address in use")) << second.err;
  LoadClient one(load_options("same")), two(load_options("same"));
  ASSERT_TRUE(one.attach());
  ASSERT_TRUE(two.attach());
  // The same sequence id at both: each has its own.
  const auto first = one.begin(SequenceId(1), prompt_of(5, 40), true);
  const auto other = two.begin(SequenceId(1), prompt_of(6, 60), true);
  ASSERT_TRUE(first && other);
  EXPECT_EQ(first->block_count, 3U);
  EXPECT_EQ(other->block_count, 4U);
  EXPECT_EQ(status_of(one.client()).clients, 2U);
  EXPECT_TRUE(one.finish(SequenceId(1), 40));
  EXPECT_EQ(status_of(two.client()).sequences, 1U);
  EXPECT_TRUE(two.finish(SequenceId(1), 60));
}

TEST_F(DeadService, WhatItLeftInTheDirectoryIsClearedOrReplacedByTheNext) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  {
    LoadClient load(load_options());
    ASSERT_TRUE(load.attach());
    ASSERT_TRUE(load.run(prompt_of(7, 50)));
    ASSERT_TRUE(load.flush());
  }
  kill_service();
  for (const char* name : {"/service.sock", "/attach.sock", "/service.lock"}) {
    ASSERT_TRUE(fs::exists(dir_.path() + name)) << name;
  }
  // A crash between the write and the rename of the format file.
  const std::string half = dir_.path() + "/disk/format.4711.tmp";
  std::ofstream(half) << "half";
  const auto stale = fs::last_write_time(dir_.path() + "/service.lock");
  ASSERT_NO_FATAL_FAILURE(serve({}));
  EXPECT_EQ(fs::last_write_time(dir_.path() + "/service.lock"), stale) << "taken over, not remade";
  LoadClient load(load_options());
  ASSERT_TRUE(load.attach());
  ASSERT_TRUE(eventually(load.client(), [](const auto& status) { return !status.recovering; }));
  EXPECT_FALSE(fs::exists(half));
  EXPECT_EQ(load.run(prompt_of(7, 50))->hits(), 48U);
  EXPECT_EQ(load.counts().wrong_blocks, 0U);
}

// SCENARIOS LEAK-18: a client that dies before it did anything keeps nothing of the service open.
TEST_F(DeadService, ClientsThatDieEarlyLeaveNoDescriptorOpen) {
  ASSERT_NO_FATAL_FAILURE(serve({}));
  LoadClient load(load_options());
  ASSERT_TRUE(load.attach());
  const auto settled = [&load](std::uint64_t gone) {
    return eventually(load.client(), [gone](const auto& status) {
      return status.clients == 1 && counter_of(status, "gone_clients") == gone;
    });
  };
  const auto one_death = [this] {
    Program program({built("chaos_forker"), dir_.path(), "alone"});
    ASSERT_TRUE(program.read_lines(1, seconds(30))) << program.err();
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait(seconds(30)).exit_code, 128 + SIGKILL);
  };
  // What is opened once and for all is open now, the disk's files too.
  ASSERT_TRUE(load.run(prompt_of(8, 50)));
  ASSERT_TRUE(load.flush());
  ASSERT_NO_FATAL_FAILURE(one_death());
  ASSERT_TRUE(settled(1));
  const std::size_t before = descriptor_count();
  for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(one_death());
  ASSERT_TRUE(settled(11));
  // ZeroMQ's own thread closes its sockets when it comes to it.
  EXPECT_TRUE(eventually(
      load.client(), [&](const auto&) { return descriptor_count() <= before; }, seconds(20)))
      << descriptor_count() << " open, " << before << " before";
  EXPECT_EQ(leftovers(status_of(load.client())), "");
}

}  // namespace
}  // namespace kv::test
