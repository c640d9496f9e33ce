// A forked child and the client of its parent: it can neither use nor end it.
#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/plugins/client/client_fixture.h"

namespace kv::test {
namespace {

using client::in;

// What `check` says in a child, which must end by itself: the first fact that does not hold, or "".
// A child that hangs is killed after its time.
std::string in_a_child(const std::function<std::string()>& check) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    (void)std::signal(SIGSEGV, SIG_DFL);  // a sanitizer makes an exit code of it
    const std::string said = check();
    const bool told = write(ends[1], said.data(), said.size()) >= 0;
    _exit(told ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 256> bytes{};
  for (ssize_t count = 0; (count = read(ends[0], bytes.data(), bytes.size())) > 0;) {
    said.append(bytes.data(), static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "no child";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == EXIT_SUCCESS ? said : "it could not tell";
}

constexpr std::uint64_t kPoolBytes = 8'192;

Bytes pool_reply(std::uint64_t request) {
  ReplyParts parts;
  parts.request = request;
  parts.body_type = wire::ReplyBody::AttachPoolReply;
  parts.body = [](auto& builder) {
    const std::vector<wire::PoolGroup> groups{{0, 128, 64}};
    return wire::CreateAttachPoolReply(builder, kPoolBytes, builder.CreateVectorOfStructs(groups))
        .Union();
  };
  return reply_frame(parts);
}

class ForkedClient : public ClientTest {
 protected:
  void SetUp() override {
    const auto script = [](const Seen& request) -> Answers {
      if (request.type == wire::RequestBody::AttachPool) {
        return std::vector<Bytes>{pool_reply(request.request)};
      }
      if (request.type != wire::RequestBody::Status) return std::nullopt;
      return std::vector<Bytes>{status_reply(request.request, 5)};
    };
    service_ = serve(script, {.pool_bytes = kPoolBytes});
    client_ = attach();
    ASSERT_NE(client_, nullptr);
    KvLayout layout{.block_tokens = 4, .groups = {}};
    layout.groups.push_back(
        {.layer_count = 1, .kv_head_count = 1, .head_dim_k = 4, .head_dim_v = 4});
    auto pool = client_->attach_pool(layout, in(seconds(10)));
    ASSERT_TRUE(pool) << pool.error().reason;
    pool_ = std::move(*pool);
  }
  std::unique_ptr<FakeService> service_;
  std::unique_ptr<client::Client> client_;
  client::Pool pool_;
};

TEST_F(ForkedClient, IsToldSoByEveryCallAndEndsWithoutAWord) {
  const auto said = in_a_child([this]() -> std::string {
    const auto status = client_->status(in(seconds(5)));
    if (status || status.error().code != ErrorCode::stale) return "status was not stale";
    if (!status.error().reason.starts_with("this process forked")) return "no clear reason";
    client::StepRequest step;
    step.step_seq = 1;
    if (client_->step(step, in(seconds(5))).error().code != ErrorCode::stale) return "step";
    if (client_->admit(SequenceId(1), 1, in(seconds(5))).error().code != ErrorCode::stale) {
      return "admit";
    }
    if (client_->held_its_blocks()) return "it holds blocks";
    client_.reset();  // must come back
    return {};
  });
  EXPECT_EQ(said, "");
  EXPECT_TRUE(service_->seen(wire::RequestBody::Bye).empty());
  const auto status = client_->status(in(seconds(10)));
  ASSERT_TRUE(status) << status.error().reason;
  EXPECT_EQ(status->clients, 5U) << "the parent goes on";
}

TEST_F(ForkedClient, CannotTouchThePool) {
  pool_.memory[0] = std::byte{1};
  const auto said = in_a_child([this]() -> std::string {
    pool_.memory[0] = std::byte{2};
    return "it was written";
  });
  EXPECT_EQ(said, "signal " + std::to_string(SIGSEGV));
  EXPECT_EQ(pool_.memory[0], std::byte{1});
}

TEST_F(ForkedClient, LeavesAloneWhatLiesWhereItsParentsPoolWas) {
  const auto said = in_a_child([this]() -> std::string {
    const std::size_t bytes = pool_.memory.size();
    void* const mine = mmap(pool_.memory.data(), bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mine != pool_.memory.data()) return "the address is in use";
    client_.reset();
    static_cast<char*>(mine)[0] = 'x';  // a signal, were it unmapped
    return {};
  });
  EXPECT_EQ(said, "");
}

// Not under the thread sanitizer, which allows no thread in a child of a program with threads.
#ifndef __SANITIZE_THREAD__
TEST_F(ForkedClient, BecomesAClientOfItsOwnWhenItAttachesAgain) {
  const auto said = in_a_child([this]() -> std::string {
    if (!client_->reattach(in(seconds(10)))) return "no attachment";
    const auto status = client_->status(in(seconds(10)));
    if (!status || status->clients != 5) return "no status";
    client_.reset();
    return {};
  });
  EXPECT_EQ(said, "");
  ASSERT_TRUE(client_->status(in(seconds(10))));
  const auto byes = service_->seen(wire::RequestBody::Bye);
  ASSERT_EQ(byes.size(), 1U);
  EXPECT_EQ(byes[0].client, 2U) << "the child's, not its parent's";
}
#endif

}  // namespace
}  // namespace kv::test
