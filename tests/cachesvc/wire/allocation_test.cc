// The steady path allocates nothing: every call of operator new in this program is counted.
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "cachesvc/wire/codec.h"
#include "tests/cachesvc/wire/samples.h"

namespace {
std::size_t allocations = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace kv::testing {
namespace {

std::vector<std::byte> bytes_of(std::string_view name) {
  for (const Sample& sample : request_samples()) {
    if (sample.name == name) return sample.bytes;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(WireAllocations, AreCounted) {
  const std::size_t before = allocations;
  const std::vector<int> some(3);
  EXPECT_EQ(allocations, before + 1);
}

TEST(WireAllocations, AreNoneInTheDecodingOfAnyRequestAlsoWhenMisaligned) {
  codec::RequestDecoder decoder;
  for (const Sample& sample : request_samples()) {
    SCOPED_TRACE(sample.name);
    std::vector<std::byte> shifted{std::byte{0}};
    shifted.insert(shifted.end(), sample.bytes.begin(), sample.bytes.end());
    const std::size_t before = allocations;
    const bool aligned = decoder.decode(sample.bytes).has_value();
    const bool misaligned = decoder.decode(std::span(shifted).subspan(1)).has_value();
    const std::size_t after = allocations;
    EXPECT_TRUE(aligned);
    EXPECT_TRUE(misaligned);
    EXPECT_EQ(after, before);
  }
}

TEST(WireAllocations, AreNoneInTheRefusalOfAFrame) {
  codec::RequestDecoder decoder;
  std::vector<std::byte> frame = bytes_of("request_step");
  frame.resize(frame.size() / 2);
  const std::size_t before = allocations;
  const bool accepted = decoder.decode(frame).has_value();
  EXPECT_EQ(allocations, before);
  EXPECT_FALSE(accepted);
}

TEST(WireAllocations, AreNoneInTheAnswerToAStepOnceTheBufferHasGrown) {
  core::StepReply step;
  step.deltas.resize(300);
  step.slots.resize(600);
  step.ended.resize(10);
  core::Reply reply;
  reply.request = RequestId(1);
  reply.body = step;
  const std::vector<core::Notice> notices(5);
  codec::ReplyEncoder encoder({1, 2});
  const std::size_t size = encoder.encode(reply, notices).size();
  const std::size_t before = allocations;
  const std::size_t again = encoder.encode(reply, notices).size();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(again, size);
}

}  // namespace
}  // namespace kv::testing
