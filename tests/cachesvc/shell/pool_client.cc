#include "tests/cachesvc/shell/pool_client.h"

#include <cstring>
#include <numeric>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kv::tests {
namespace {

std::vector<std::uint32_t> counted_tokens(std::uint32_t count) {
  std::vector<std::uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0U);
  return tokens;
}

}  // namespace

PoolClient::PoolClient(const std::string& dir) : client_(dir, true) {
  if (!client_.is_attached() || client_.hello().code() != wire::ErrorCode::ok) return;
  const auto attached = client_.attach_pool({});
  if (attached.code() != wire::ErrorCode::ok) return;
  const wire::PoolGroup* const group = attached->body_as_AttachPoolReply()->groups()->Get(0);
  offset_ = group->offset();
  slot_bytes_ = group->slot_bytes();
  slot_count_ = group->slot_count();
  const auto pool = client_.attach().ask(wire::AttachKind::device_pool);
  if (pool.code != wire::ErrorCode::ok) return;
  bytes_ = pool.bytes;
  void* const mapped =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, pool.descriptor, 0);
  close(pool.descriptor);
  if (mapped != MAP_FAILED) memory_ = static_cast<std::uint8_t*>(mapped);
}

PoolClient::~PoolClient() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

std::string PoolClient::pattern(std::uint8_t seed) {
  std::string bytes(TestLayout().block_bytes(), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] =
        static_cast<char>(static_cast<std::uint8_t>(std::size_t{seed} * 31 + i * 7 + i / 256));
  }
  return bytes;
}

std::uint8_t* PoolClient::slot(std::uint32_t index) const {
  return memory_ + offset_ + slot_bytes_ * index;
}

bool PoolClient::holds(std::uint32_t index, std::uint8_t seed) const {
  const std::string wanted = pattern(seed);
  return std::memcmp(slot(index), wanted.data(), wanted.size()) == 0;
}

void PoolClient::wipe_device() { std::memset(memory_, 0xEE, bytes_); }

void PoolClient::publish(std::uint64_t sequence, std::uint32_t token_count, std::uint8_t seed) {
  ASSERT_EQ(client_.open(sequence, counted_tokens(token_count)).code(), wire::ErrorCode::ok);
  const auto admitted = client_.admit(sequence, 0);
  ASSERT_EQ(admitted.code(), wire::ErrorCode::ok);
  const auto* const body = admitted->body_as_AdmitReply();
  ASSERT_TRUE(body->ready());
  for (std::uint32_t block = 0; block < body->block_count(); ++block) {
    const std::string bytes = pattern(static_cast<std::uint8_t>(seed + block));
    std::memcpy(slot(body->slots()->Get(block)), bytes.data(), bytes.size());
  }
  ++step_;
  const auto stepped = client_.step(
      step_, step_,
      {{.sequence = sequence, .op = wire::StepOp::publish, .value = token_count, .tokens = {}},
       {.sequence = sequence, .op = wire::StepOp::free, .tokens = {}}});
  ASSERT_EQ(stepped.code(), wire::ErrorCode::ok);
  const auto* const failures = stepped->body_as_StepReply()->failures();
  ASSERT_TRUE(failures == nullptr || failures->size() == 0);
}

PoolClient::Hit PoolClient::admit_again(std::uint64_t sequence, std::uint32_t token_count) {
  Hit hit;
  EXPECT_EQ(client_.open(sequence, counted_tokens(token_count)).code(), wire::ErrorCode::ok);
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto admitted = client_.admit(sequence, 0);
    EXPECT_EQ(admitted.code(), wire::ErrorCode::ok);
    if (admitted.code() != wire::ErrorCode::ok) return hit;
    const auto* const body = admitted->body_as_AdmitReply();
    if (!body->ready() && client_.notice(sequence) != wire::ErrorCode::ok) continue;
    hit.device_tokens = body->account()->device_tokens();
    hit.host_tokens = body->account()->host_tokens();
    hit.disk_tokens = body->account()->disk_tokens();
    hit.slots.assign(body->slots()->begin(), body->slots()->end());
    return hit;
  }
  ADD_FAILURE() << "every load failed";
  return hit;
}

}  // namespace kv::tests
