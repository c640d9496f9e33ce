// Bytes from an enemy: every frame is either refused or decoded to something whose form is right.
// The sanitizer build of this test is what proves that nothing outside the frame is read.
#include <cstring>
#include <memory>
#include <variant>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "cachesvc/wire/codec.h"
#include "schemas/request_generated.h"
#include "tests/cachesvc/wire/form_report.h"
#include "tests/cachesvc/wire/samples.h"

namespace kv::testing {
namespace {

// Exactly as long as its content and aligned as malloc does, so that a read beyond is seen.
class ExactBytes {
 public:
  explicit ExactBytes(std::span<const std::byte> bytes)
      : size_(bytes.size()), bytes_(std::make_unique<std::byte[]>(bytes.size())) {
    if (!bytes.empty()) std::memcpy(bytes_.get(), bytes.data(), bytes.size());
  }
  [[nodiscard]] std::span<const std::byte> get() const { return {bytes_.get(), size_}; }

 private:
  std::size_t size_;
  std::unique_ptr<std::byte[]> bytes_;
};

// Decodes as a request; true when it was accepted.
bool feed_request(codec::RequestDecoder& decoder, std::span<const std::byte> bytes) {
  const ExactBytes frame(bytes);
  const auto result = decoder.decode(frame.get());
  if (!result) {
    EXPECT_FALSE(result.error().reason.empty());
    return false;
  }
  EXPECT_FALSE(result->envelope.client.is_none());
  EXPECT_FALSE(result->envelope.request.is_none());
  EXPECT_EQ(form_report(result->input).error, "");
  return true;
}

bool feed_attach(std::span<const std::byte> bytes) {
  const ExactBytes packet(bytes);
  return codec::decode_attach_request(packet.get()).has_value();
}

TEST(HostileBytes, OfEveryShorterLengthAreRefused) {
  codec::RequestDecoder decoder;
  for (const Sample& sample : request_samples()) {
    SCOPED_TRACE(sample.name);
    ASSERT_TRUE(feed_request(decoder, sample.bytes));
    for (std::size_t length = 0; length < sample.bytes.size(); ++length) {
      // Padding at the end may be missing without harm: then the input must be whole.
      feed_request(decoder, std::span(sample.bytes).first(length));
    }
    EXPECT_FALSE(feed_request(decoder, std::span(sample.bytes).first(sample.bytes.size() / 2)));
    EXPECT_FALSE(feed_request(decoder, std::span(sample.bytes).first(7)));
    EXPECT_FALSE(feed_request(decoder, {}));
  }
  const Sample attach = attach_request_sample();
  ASSERT_TRUE(feed_attach(attach.bytes));
  for (std::size_t length = 0; length < attach.bytes.size(); ++length) {
    feed_attach(std::span(attach.bytes).first(length));
  }
  EXPECT_FALSE(feed_attach(std::span(attach.bytes).first(attach.bytes.size() / 2)));
}

TEST(HostileBytes, WithAnyByteChangedAreRefusedOrRightInForm) {
  codec::RequestDecoder decoder;
  for (Sample sample : request_samples()) {
    SCOPED_TRACE(sample.name);
    for (std::byte& byte : sample.bytes) {
      const std::byte before = byte;
      for (const unsigned flip : {0x01U, 0x80U, 0xFFU, 0x10U}) {
        byte = before ^ static_cast<std::byte>(flip);
        feed_request(decoder, sample.bytes);
      }
      byte = before;
    }
  }
  Sample attach = attach_request_sample();
  for (std::byte& byte : attach.bytes) {
    const std::byte before = byte;
    for (unsigned value = 0; value < 256; ++value) {
      byte = static_cast<std::byte>(value);
      feed_attach(attach.bytes);
    }
    byte = before;
  }
}

// Damages a message in the ways that find bugs: values at the edges, moved and repeated pieces.
std::vector<std::byte> mutate(std::vector<std::byte> bytes, Prng& prng) {
  constexpr std::uint32_t kEdges[] = {0,      1,          4,          0x7F,      0x80,
                                      0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  const std::uint64_t changes = 1 + prng.below(4);
  for (std::uint64_t change = 0; change < changes && !bytes.empty(); ++change) {
    const std::size_t at = prng.below(bytes.size());
    switch (prng.below(6)) {
      case 0:
        bytes[at] = static_cast<std::byte>(prng.below(256));
        break;
      case 1: {
        const std::uint32_t edge = kEdges[prng.below(std::size(kEdges))];
        std::memcpy(&bytes[at], &edge, std::min(sizeof(edge), bytes.size() - at));
        break;
      }
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(bytes.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 4:
        bytes[at] = bytes[prng.below(bytes.size())];
        break;
      default:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
        break;
    }
  }
  return bytes;
}

TEST(HostileBytes, SurviveTenThousandMutationsOfEveryMessage) {
  constexpr int kMutations = 10'000;
  codec::RequestDecoder decoder;
  std::uint64_t seed = 1;
  for (const Sample& sample : request_samples()) {
    SCOPED_TRACE(sample.name);
    Prng prng(seed++);
    int accepted = 0;
    for (int i = 0; i < kMutations; ++i) {
      if (feed_request(decoder, mutate(sample.bytes, prng))) ++accepted;
    }
    // The mutations reach both sides of the checks.
    EXPECT_GT(accepted, kMutations / 100);
    EXPECT_LT(accepted, kMutations * 99 / 100);
  }
  Prng prng(seed);
  int accepted = 0;
  for (int i = 0; i < kMutations; ++i) {
    if (feed_attach(mutate(attach_request_sample().bytes, prng))) ++accepted;
  }
  EXPECT_GT(accepted, kMutations / 100);
  EXPECT_LT(accepted, kMutations * 99 / 100);
}

TEST(HostileBytes, OfPureChanceAreRefused) {
  codec::RequestDecoder decoder;
  Prng prng(99);
  for (int i = 0; i < 10'000; ++i) {
    std::vector<std::byte> bytes(prng.below(300));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.below(256));
    // With the right identifier they get further.
    if (i % 2 == 0 && bytes.size() >= 8) std::memcpy(&bytes[4], "KVRQ", 4);
    feed_request(decoder, bytes);
    if (i % 2 == 0 && bytes.size() >= 8) std::memcpy(&bytes[4], "KVAT", 4);
    feed_attach(bytes);
  }
  std::vector<std::byte> bytes(64);
  EXPECT_FALSE(feed_request(decoder, bytes));
  EXPECT_FALSE(feed_attach(bytes));
}

TEST(HostileBytes, WithAnotherIdentifierAreRefused) {
  codec::RequestDecoder decoder;
  for (const Sample& sample : reply_samples()) EXPECT_FALSE(feed_request(decoder, sample.bytes));
  EXPECT_FALSE(feed_request(decoder, attach_request_sample().bytes));
  for (Sample sample : request_samples()) {
    sample.bytes[7] ^= std::byte{1};
    EXPECT_FALSE(feed_request(decoder, sample.bytes));
  }
}

TEST(HostileBytes, OverTheSizeLimitAreRefusedUnread) {
  codec::RequestDecoder decoder;
  std::vector<std::byte> bytes = request_samples().front().bytes;
  bytes.resize(codec::kMessageBytesMax);
  EXPECT_TRUE(decoder.decode(bytes).has_value());  // trailing bytes do no harm
  bytes.resize(codec::kMessageBytesMax + 1);
  const auto result = decoder.decode(bytes);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::too_large);
  EXPECT_TRUE(decoder.envelope().client.is_none());
  // The largest frame at an odd address fits the decoder's copy.
  bytes.resize(codec::kMessageBytesMax + 1);
  const std::vector<std::byte> hello = request_samples().front().bytes;
  std::memcpy(bytes.data() + 1, hello.data(), hello.size());
  EXPECT_TRUE(decoder.decode(std::span(bytes).subspan(1)).has_value());
}

// The verifier does not look at the alignment of a vector's elements: a frame whose StepItems lie
// at 4 modulo 8 is read correctly, not by a misaligned load.
TEST(HostileBytes, WithMisalignedItemsAreReadCorrectly) {
  const wire::StepItem item(21, 1, 0, 0, 48);
  codec::RequestDecoder decoder;
  bool seen = false;
  for (std::size_t padding = 0; padding < 4; ++padding) {
    flatbuffers::FlatBufferBuilder builder;
    const auto tokens = builder.CreateVector(std::vector<std::uint32_t>(padding, 1));
    // A [uint] vector with the items' bytes: aligned to 4 only. Its length becomes that of the
    // items.
    std::vector<std::uint32_t> words(sizeof(item) / 4);
    std::memcpy(words.data(), &item, sizeof(item));
    const auto vector = builder.CreateVector(words);
    const auto step = wire::CreateStep(builder, 1, 0, vector.o, tokens);
    wire::FinishRequestBuffer(builder, wire::CreateRequest(builder, 7, nullptr, 3, 0,
                                                           wire::RequestBody::Step, step.Union()));
    auto* request = flatbuffers::GetMutableRoot<wire::Request>(builder.GetBufferPointer());
    auto* items =
        const_cast<flatbuffers::Vector<const wire::StepItem*>*>(request->body_as_Step()->items());
    const std::uint32_t one = 1;
    std::memcpy(reinterpret_cast<std::uint8_t*>(items), &one, sizeof(one));
    seen = seen || reinterpret_cast<std::uintptr_t>(items->Data()) % 8 != 0;
    const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
    const auto result = decoder.decode({bytes, builder.GetSize()});
    ASSERT_TRUE(result.has_value());
    const auto& decoded = std::get<core::Step>(result->input);
    ASSERT_EQ(decoded.items.size(), 1U);
    EXPECT_EQ(decoded.items[0].sequence, SequenceId(21));
    EXPECT_EQ(decoded.items[0].value, 48U);
  }
  EXPECT_TRUE(seen);
}

TEST(HostileBytes, AreTheSameAtEveryAddress) {
  codec::RequestDecoder decoder;
  Prng prng(5);
  for (int i = 0; i < 2'000; ++i) {
    const auto& samples = request_samples();
    const auto damaged = mutate(samples[prng.below(samples.size())].bytes, prng);
    std::vector<std::byte> shifted(damaged.size() + 1);
    if (!damaged.empty()) std::memcpy(shifted.data() + 1, damaged.data(), damaged.size());
    const bool aligned = decoder.decode(damaged).has_value();
    EXPECT_EQ(decoder.decode(std::span(shifted).subspan(1)).has_value(), aligned);
  }
}

}  // namespace
}  // namespace kv::testing
