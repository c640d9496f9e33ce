// Hostile frames over the real request socket of a running service, from strangers and from a
// client that was let in: each gets an error of the closed set or is dropped, and is counted
// exactly once; the state is as before.
#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tests/cachesvc/shell/pool_client.h"
#include "tests/cachesvc/shell/running_service.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"
#include "tests/cachesvc/wire/samples.h"

namespace kv::shell {
namespace {

using tests::AttachConnection;
using tests::eventually;
using tests::options_in;
using tests::PoolClient;
using tests::RunningService;
using tests::TempDir;
using tests::TestClient;
using wire::ErrorCode;
using Frame = std::vector<std::uint8_t>;

constexpr std::size_t kMessageBytesMax = 1U << 20U;

Frame to_frame(std::span<const std::byte> bytes) {
  Frame frame(bytes.size());
  if (!bytes.empty()) std::memcpy(frame.data(), bytes.data(), bytes.size());
  return frame;
}

// The sample with another envelope: the fields are scalars that every sample holds.
Frame addressed(std::span<const std::byte> sample, const AttachConnection::Reply& ticket,
                std::uint64_t request) {
  Frame frame = to_frame(sample);
  auto* const table = flatbuffers::GetMutableRoot<flatbuffers::Table>(frame.data());
  const auto* const read = wire::GetRequest(frame.data());
  const auto write = [&](std::uint16_t field, std::uint64_t value) {
    std::uint8_t* const at = table->GetAddressOf(field);
    if (at != nullptr) std::memcpy(at, &value, sizeof(value));
  };
  write(wire::Request::VT_CLIENT, ticket.client);
  write(wire::Request::VT_REQUEST, request);
  if (read->secret() != nullptr) {
    auto* const secret = const_cast<wire::Id128*>(read->secret());
    *secret = wire::Id128(ticket.secret_a, ticket.secret_b);
  }
  return frame;
}

// A frame of up to 1 MiB: a long Open, as a client would send it.
Frame long_open(std::size_t tokens) {
  flatbuffers::FlatBufferBuilder builder;
  const std::vector<std::uint32_t> words(tokens, 5);
  const auto open = wire::CreateOpenDirect(builder, 77, 0, &words);
  const wire::Id128 secret(1, 2);
  wire::FinishRequestBuffer(builder, wire::CreateRequest(builder, 7, &secret, 3, 1,
                                                         wire::RequestBody::Open, open.Union()));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

void mutate(Frame& frame, Prng& prng) {
  constexpr std::uint32_t kEdges[] = {0,      1,          4,          0x7F,      0x80,
                                      0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  const std::uint64_t changes = 1 + prng.below(4);
  for (std::uint64_t i = 0; i < changes && !frame.empty(); ++i) {
    const std::size_t at = prng.below(frame.size());
    switch (prng.below(5)) {
      case 0:
        frame[at] = static_cast<std::uint8_t>(prng.next());
        break;
      case 1: {
        const std::uint32_t edge = kEdges[prng.below(std::size(kEdges))];
        std::memcpy(&frame[at], &edge, std::min(sizeof(edge), frame.size() - at));
        break;
      }
      case 2:
        frame.resize(at);
        break;
      case 3:
        frame[at] = frame[prng.below(frame.size())];
        break;
      default:
        frame.insert(frame.end(), frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(at));
        break;
    }
  }
  // Now and then up to the largest message there is.
  if (prng.below(200) == 0) frame.resize(1 + prng.below(kMessageBytesMax), 0xAB);
  if (frame.size() > kMessageBytesMax) frame.resize(kMessageBytesMax);
}

// Frames that the shell gave a name to: every one that arrives is in exactly one of them.
std::uint64_t accounted(TestClient& witness) {
  const auto counters = witness.counters();
  std::uint64_t sum = 0;
  for (const char* name : {"received_requests", "malformed_frames", "invalid_requests",
                           "oversized_requests", "denied_requests", "unread_requests"}) {
    sum += counters.at(name);
  }
  return sum;
}

// What a client can see of the state, but for the counters.
std::string state_of(TestClient& witness) {
  const auto reply = witness.status();
  if (!reply.has_arrived() || reply->body_as_StatusReply() == nullptr) return "no status";
  const auto* status = reply->body_as_StatusReply();
  std::string text;
  for (const wire::TierStatus* tier : *status->tiers()) {
    for (const std::uint32_t number :
         {tier->slots(), tier->free(), tier->held(), tier->cached(), tier->fenced(),
          tier->covered(), tier->evictable(), tier->arriving()}) {
      text += std::to_string(number) + " ";
    }
    text += "/ ";
  }
  for (const std::uint64_t number :
       {std::uint64_t{status->clients()}, std::uint64_t{status->sequences()},
        std::uint64_t{status->transfers_in_flight()}, std::uint64_t{status->tree_blocks()},
        std::uint64_t{status->tree_nodes()}, std::uint64_t{status->holes()},
        std::uint64_t{status->namespaces()}, std::uint64_t{status->block_tokens()},
        status->metadata_bytes()}) {
    text += std::to_string(number) + " ";
  }
  return text;
}

class HostileWire : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(owner_.is_ready());
    owner_.publish(1, 40, 7);
    ASSERT_TRUE(eventually([this] { return owner_.counter("saved_blocks.disk") == 2; }));
    before_ = state_of(witness());
  }
  [[nodiscard]] TestClient& witness() { return owner_.client(); }
  // Each of these frames was counted once; what this asks for itself is counted too.
  [[nodiscard]] bool all_arrived(std::uint64_t start, std::uint64_t sent) {
    std::uint64_t asked = 0;
    return eventually([&] { return accounted(witness()) - start - ++asked == sent; });
  }
  // Nothing is held, and every slot is where one can be found.
  [[nodiscard]] bool is_at_rest() {
    const auto reply = witness().status();
    const auto* status = reply->body_as_StatusReply();
    if (status->sequences() != 0 || status->transfers_in_flight() != 0) return false;
    for (const wire::TierStatus* tier : *status->tiers()) {
      if (tier->held() != 0 || tier->fenced() != 0 || tier->covered() != 0) return false;
      if (tier->free() + tier->cached() != tier->slots()) return false;
    }
    return status->clients() == 1;
  }
  // The blocks that were there are there, with their bytes.
  void expect_cache_intact() {
    const auto hit = owner_.admit_again(2, 40);
    EXPECT_EQ(hit.device_tokens + hit.host_tokens + hit.disk_tokens, 32U);
    ASSERT_GE(hit.slots.size(), 2U);
    EXPECT_TRUE(owner_.holds(hit.slots[0], 7));
    EXPECT_TRUE(owner_.holds(hit.slots[1], 8));
    std::uint64_t step = 1'000;
    const auto freed =
        witness().step(step, step, {{.sequence = 2, .op = wire::StepOp::free, .tokens = {}}});
    EXPECT_EQ(freed.code(), ErrorCode::ok);
  }
  // Reads what came; every code is one of the closed set (the verifier does not check that).
  std::uint64_t read_replies(TestClient& client) {
    std::uint64_t count = 0;
    for (auto reply = client.receive(std::chrono::milliseconds(0)); reply.has_arrived();
         reply = client.receive(std::chrono::milliseconds(0))) {
      EXPECT_LE(static_cast<int>(reply.code()), static_cast<int>(ErrorCode::MAX));
      codes_.insert(reply.code());
      ++count;
    }
    return count;
  }

  TempDir dir_;
  RunningService service_{options_in(dir_.path())};
  PoolClient owner_{dir_.path()};
  std::string before_;
  std::set<ErrorCode> codes_;
};

// SCENARIOS CRASH-19
TEST_F(HostileWire, TenThousandMutatedFramesOfAStrangerChangeNothing) {
  constexpr int kFrames = 10'000;
  const std::uint64_t start = accounted(witness());
  auto ticket = witness().ticket();
  ticket.secret_a = ~ticket.secret_a;  // so far off that no mutation finds it
  ticket.secret_b = ~ticket.secret_b;
  TestClient stranger(dir_.path(), ticket);
  Prng prng(2'024);
  const auto samples = kv::testing::request_samples();
  for (int i = 0; i < kFrames; ++i) {
    Frame frame = prng.below(20) == 0
                      ? long_open(prng.below(20'000))
                      : addressed(samples[prng.below(samples.size())].bytes, ticket, 1'000);
    mutate(frame, prng);
    stranger.send_frames({frame});
    if (i % 16 == 0) read_replies(stranger);
  }
  ASSERT_TRUE(all_arrived(start, kFrames));
  read_replies(stranger);
  // It has no secret: what was understood at all was denied, or a client that does not exist.
  for (const ErrorCode code : codes_) {
    EXPECT_TRUE(code == ErrorCode::denied || code == ErrorCode::stale) << static_cast<int>(code);
  }
  EXPECT_TRUE(codes_.contains(ErrorCode::denied));
  EXPECT_GT(witness().counter("malformed_frames"), 100U);
  EXPECT_EQ(state_of(witness()), before_);
  expect_cache_intact();
}

// SCENARIOS CRASH-19: and of clients that were let in: what they asked for goes with them.
TEST_F(HostileWire, TenThousandMutatedFramesOfClientsLeaveNothingBehindThem) {
  constexpr int kClients = 40;
  constexpr int kFramesOfEach = 250;
  Prng prng(2'025);
  auto samples = kv::testing::request_samples();
  // After its Bye a client is not listened to.
  std::erase_if(samples, [](const auto& sample) { return sample.name == "request_bye"; });
  for (int c = 0; c < kClients; ++c) {
    TestClient insider(dir_.path(), false);
    ASSERT_EQ(insider.hello().code(), ErrorCode::ok);
    ASSERT_EQ(insider.attach_pool({}).code(), ErrorCode::ok);
    const std::uint64_t start = accounted(witness());
    std::uint64_t request = 10;
    for (int i = 0; i < kFramesOfEach; ++i) {
      Frame frame =
          addressed(samples[prng.below(samples.size())].bytes, insider.ticket(), ++request);
      mutate(frame, prng);
      insider.send_frames({frame});
      if (i % 8 == 0) read_replies(insider);
    }
    ASSERT_TRUE(all_arrived(start, kFramesOfEach));
    read_replies(insider);
    insider.set_request(~std::uint64_t{0} - 2);  // above whatever they promised
    (void)insider.bye();
  }
  EXPECT_TRUE(codes_.contains(ErrorCode::invalid));
  EXPECT_TRUE(codes_.contains(ErrorCode::ok));
  EXPECT_GE(codes_.size(), 5U);
  EXPECT_GT(witness().counter("invalid_requests"), 100U);
  EXPECT_TRUE(eventually([&] { return is_at_rest(); })) << state_of(witness());
  expect_cache_intact();
}

TEST_F(HostileWire, EveryPrefixOfEveryRequestIsAnsweredOrDropped) {
  auto ticket = witness().ticket();
  TestClient stranger(dir_.path(), AttachConnection::Reply{});
  const std::uint64_t start = accounted(witness());
  std::uint64_t sent = 0;
  for (const auto& sample : kv::testing::request_samples()) {
    const Frame whole = addressed(sample.bytes, AttachConnection::Reply{}, 1);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      stranger.send_frames({Frame(whole.begin(), whole.begin() + static_cast<int>(length))});
      ++sent;
    }
    read_replies(stranger);
  }
  EXPECT_TRUE(all_arrived(start, sent));
  EXPECT_EQ(state_of(witness()), before_);
}

TEST_F(HostileWire, FramesOfAnotherKindOrOfSeveralPartsAreMalformed) {
  TestClient stranger(dir_.path(), witness().ticket());
  const std::uint64_t start = witness().counter("malformed_frames");
  std::uint64_t sent = 0;
  for (const auto& sample : kv::testing::reply_samples()) {  // KVRP
    stranger.send_frames({to_frame(sample.bytes)});
    ++sent;
  }
  stranger.send_frames({to_frame(kv::testing::attach_request_sample().bytes)});  // KVAT
  const Frame good =
      addressed(kv::testing::request_samples().front().bytes, witness().ticket(), 900);
  stranger.send_frames({good, good});
  stranger.send_frames({{}, good});  // as a REQ socket frames it
  stranger.send_frames({Frame(kMessageBytesMax, 0)});
  sent += 4;
  EXPECT_TRUE(eventually([&] { return witness().counter("malformed_frames") - start == sent; }));
  EXPECT_EQ(state_of(witness()), before_);
}

// ---------------------------------------------------------------- valid but senseless
class Senseless : public HostileWire {
 protected:
  void expect(const TestClient::Reply& reply, ErrorCode code, const char* field = nullptr) {
    ASSERT_TRUE(reply.has_arrived());
    EXPECT_EQ(reply.code(), code) << reply->reason()->str();
    if (field == nullptr) return;
    ASSERT_NE(reply->field(), nullptr);
    EXPECT_EQ(reply->field()->str(), field);
  }
  TestClient::Reply step(std::uint64_t number, std::uint64_t completed,
                         const std::vector<wire::StepItem>& items,
                         const std::vector<std::uint32_t>& tokens = {}) {
    return owner_.client().ask(wire::RequestBody::Step, [&](auto& builder) {
      return wire::CreateStepDirect(builder, number, completed, &items, &tokens).Union();
    });
  }
  static wire::StepItem item(std::uint64_t sequence, unsigned op, std::uint32_t offset = 0,
                             std::uint32_t count = 0, std::uint32_t value = 0) {
    return {sequence, static_cast<std::uint8_t>(op), offset, count, value};
  }
  void expect_failure(const TestClient::Reply& reply, std::uint32_t at, ErrorCode code) {
    ASSERT_EQ(reply.code(), ErrorCode::ok);
    const auto* failures = reply->body_as_StepReply()->failures();
    ASSERT_NE(failures, nullptr);
    for (const wire::StepFailure* failure : *failures) {
      if (failure->item() != at) continue;
      EXPECT_EQ(failure->code(), code);
      return;
    }
    ADD_FAILURE() << "item " << at << " did not fail";
  }
};

TEST_F(Senseless, IdsThatNobodyGaveAreNotFound) {
  expect(witness().admit(999, 0), ErrorCode::not_found, "sequence");
  const auto reply = step(100, 100, {item(999, 0), item(999, 1), item(999, 3), item(999, 4)});
  for (std::uint32_t i = 0; i < 4; ++i) expect_failure(reply, i, ErrorCode::not_found);
  expect(witness().ask(wire::RequestBody::Open,
                       [](auto& builder) { return wire::CreateOpen(builder, 999).Union(); }),
         ErrorCode::not_found, "sequence");
  EXPECT_EQ(state_of(witness()), before_);
}

TEST_F(Senseless, ReservedAndOutOfRangeValuesAreInvalid) {
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  expect(witness().admit(kNone, 0), ErrorCode::invalid, "sequence");
  expect(step(100, 100, {item(kNone, 3)}), ErrorCode::invalid, "sequence");
  expect(step(100, 100, {item(1, core::kStepOpCount)}), ErrorCode::invalid, "op");
  expect(step(100, 100, {item(1, 255)}), ErrorCode::invalid, "op");
  expect(step(100, 100, {item(1, 0, 3, 1)}, {1, 2, 3}), ErrorCode::invalid, "token_count");
  expect(step(100, 100, {item(1, 0, 0xFFFFFFFF, 0xFFFFFFFF)}, {1}), ErrorCode::invalid,
         "token_count");
  expect(step(100, 100, {item(1, 3, 0, 1)}, {1}), ErrorCode::invalid, "token_count");
  expect(step(100, 100, {item(1, 3, 0, 0, 9)}), ErrorCode::invalid, "value");
  expect(step(100, 101, {}), ErrorCode::invalid, "completed_step");
  expect(step(0, 0, {}), ErrorCode::invalid, "step_seq");
  expect(witness().demote(static_cast<wire::Tier>(9)), ErrorCode::invalid, "tier");
  expect(witness().ask(static_cast<wire::RequestBody>(99),
                       [](auto& builder) { return wire::CreateStatus(builder).Union(); }),
         ErrorCode::unsupported, "body");
  expect(witness().ask(wire::RequestBody::NONE, [](auto&) { return flatbuffers::Offset<void>(); }),
         ErrorCode::invalid, "body");
  EXPECT_EQ(state_of(witness()), before_);
}

TEST_F(Senseless, AnotherVersionOrLayoutIsNamedByItsField) {
  expect(witness().ask(wire::RequestBody::Hello,
                       [](auto& builder) { return wire::CreateHello(builder, 2).Union(); }),
         ErrorCode::mismatch, "protocol_version");
  expect(witness().attach_pool({.block_tokens = 32}), ErrorCode::mismatch, "block_tokens");
  expect(witness().attach_pool({.block_tokens = 0}), ErrorCode::invalid, "block_tokens");
  const auto with_group = [this](const wire::LayerGroup& group) {
    return witness().ask(wire::RequestBody::AttachPool, [&](auto& builder) {
      const std::vector<wire::LayerGroup> groups = {group};
      return wire::CreateAttachPool(builder, wire::CreateLayoutDirect(builder, 16, &groups))
          .Union();
    });
  };
  expect(with_group(wire::LayerGroup(77, 0, 0, 2, 1, 4, 4, 0, 0)), ErrorCode::invalid, "kind");
  expect(with_group(wire::LayerGroup(0, 99, 0, 2, 1, 4, 4, 0, 0)), ErrorCode::invalid, "k_dtype");
  expect(with_group(wire::LayerGroup(0, 0, 99, 2, 1, 4, 4, 0, 0)), ErrorCode::invalid, "v_dtype");
  expect(with_group(wire::LayerGroup(0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 4, 0, 0)),
         ErrorCode::invalid);
  EXPECT_EQ(state_of(witness()), before_);
}

// SCENARIOS LEAK-20, LEAK-21: one holding is given back once, however often it is named.
TEST_F(Senseless, AnItemThatIsRepeatedHasItsEffectOnce) {
  ASSERT_EQ(witness().open(5, std::vector<std::uint32_t>(20, 9)).code(), ErrorCode::ok);
  ASSERT_EQ(witness().admit(5, 16).code(), ErrorCode::ok);
  // Overlapping ranges of the message's tokens are two appends of the same words.
  auto reply = step(100, 100, {item(5, 0, 0, 3), item(5, 0, 1, 3)}, {1, 2, 3, 4});
  EXPECT_EQ(reply.code(), ErrorCode::ok);
  EXPECT_EQ(reply->body_as_StepReply()->failures(), nullptr);
  reply = step(101, 101, {item(5, 1, 0, 0, 27), item(5, 2, 0, 0, 27), item(5, 4, 0, 0, 99)});
  for (std::uint32_t i = 0; i < 3; ++i) expect_failure(reply, i, ErrorCode::invalid);
  reply = step(102, 102, {item(5, 3), item(5, 3), item(5, 3)});
  expect_failure(reply, 1, ErrorCode::not_found);
  expect_failure(reply, 2, ErrorCode::not_found);
  EXPECT_EQ(reply->body_as_StepReply()->ended()->size(), 1U);
  EXPECT_EQ(reply->body_as_StepReply()->ended()->Get(0)->account().generated_tokens(), 6U);
  // What was freed three times is given out once.
  std::set<std::uint32_t> slots;
  for (const std::uint64_t sequence : {6U, 7U}) {
    ASSERT_EQ(witness().open(sequence, std::vector<std::uint32_t>(20, 9)).code(), ErrorCode::ok);
    const auto admitted = witness().admit(sequence, 0);
    ASSERT_EQ(admitted.code(), ErrorCode::ok);
    for (const std::uint32_t slot : *admitted->body_as_AdmitReply()->slots()) slots.insert(slot);
  }
  EXPECT_EQ(slots.size(), 4U);
  EXPECT_EQ(step(103, 103, {item(6, 3), item(7, 3)}).code(), ErrorCode::ok);
  EXPECT_TRUE(eventually([&] { return state_of(witness()) == before_; }));
}

TEST_F(Senseless, EveryRequestTwiceIsAnsweredAlikeAndDoneOnce) {
  const auto twice = [this](const std::function<TestClient::Reply()>& ask) {
    static std::uint64_t request = 1'000'000;  // above those of waiting
    request += 2;
    witness().set_request(request);
    const auto first = ask();
    witness().set_request(request);
    const auto again = ask();
    EXPECT_EQ(first.code(), ErrorCode::ok);
    EXPECT_EQ(again.bytes, first.bytes);
  };
  const std::uint64_t repeated = witness().counter("repeated_requests");
  const std::uint64_t admissions = witness().counter("admissions");
  const std::uint64_t published = witness().counter("published_blocks");
  const std::vector<std::uint32_t> tokens(20, 9);
  twice([&] { return witness().open(5, tokens); });
  twice([&] { return witness().admit(5, 16); });
  twice([&] { return step(100, 99, {item(5, 0, 0, 2), item(5, 1, 0, 0, 16)}, {1, 2}); });
  twice([&] { return step(101, 101, {item(5, 3)}); });
  twice([&] { return witness().lookup(tokens); });
  twice([&] { return witness().flush(); });
  EXPECT_EQ(witness().counter("repeated_requests") - repeated, 6U);
  EXPECT_LE(witness().counter("admissions") - admissions, 1U);
  EXPECT_EQ(witness().counter("published_blocks") - published, 1U);
  EXPECT_EQ(witness().status()->body_as_StatusReply()->sequences(), 0U);
  // A request from before what is kept is stale, and nothing is done for it.
  witness().set_request(2'000'000);
  for (int i = 0; i < 70; ++i) ASSERT_EQ(witness().status().code(), ErrorCode::ok);
  witness().set_request(1'000'000);
  EXPECT_EQ(witness().open(6, tokens).code(), ErrorCode::stale);
  witness().set_request(3'000'000);
  EXPECT_EQ(witness().status()->body_as_StatusReply()->sequences(), 0U);
}

// SCENARIOS SEC-06, CRASH-11: ids are a client's own.
TEST_F(Senseless, TheSequencesOfAnotherClientCannotBeNamed) {
  ASSERT_EQ(witness().open(5, std::vector<std::uint32_t>(20, 9)).code(), ErrorCode::ok);
  ASSERT_EQ(witness().admit(5, 0).code(), ErrorCode::ok);
  TestClient other(dir_.path(), false);
  ASSERT_EQ(other.attach_pool({}).code(), ErrorCode::ok);
  const auto freed = other.step(1, 1, {{.sequence = 5, .op = wire::StepOp::free, .tokens = {}}});
  expect_failure(freed, 0, ErrorCode::not_found);
  EXPECT_EQ(other.admit(5, 0).code(), ErrorCode::not_found);
  // With the id of the owner but another secret: denied, by name.
  auto ticket = other.ticket();
  ticket.client = witness().ticket().client;
  TestClient liar(dir_.path(), ticket);
  liar.set_request(5'000);
  EXPECT_EQ(liar.step(1, 1, {{.sequence = 5, .op = wire::StepOp::free, .tokens = {}}}).code(),
            ErrorCode::denied);
  EXPECT_EQ(other.open(5, {1, 2, 3}).code(), ErrorCode::ok);  // an id of its own
  EXPECT_EQ(witness().open(5, {1, 2, 3}).code(), ErrorCode::exists);
  const auto mine = step(100, 100, {item(5, 3)});
  EXPECT_EQ(mine.code(), ErrorCode::ok);
  EXPECT_EQ(mine->body_as_StepReply()->failures(), nullptr);
}

}  // namespace
}  // namespace kv::shell
