#include "tests/fuzz/engine_program.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "allocator/base/check.h"
#include "schemas/reply_generated.h"
#include "tools/world/checkers.h"

namespace kv::testing {
namespace {

using flatbuffers::FlatBufferBuilder;
using wire::RequestBody;

// A dozen blocks a tier, so that every limit is met within a few events.
constexpr std::uint32_t kBlockTokens = 4;
constexpr std::uint64_t kBlockBytes = 256;  // 4 tokens x 1 layer x 1 head x (8 + 8) x f32
constexpr std::uint64_t kDiskSlotBytes = 4'096;
constexpr std::uint32_t kSequences = 2;  // ids of each client
constexpr int kContinuesMax = 10'000;

core::Engine::Options options() {
  core::Engine::Options options;
  options.tier_bytes = {18 * kBlockBytes, 12 * kBlockBytes, 16 * kDiskSlotBytes, 0};
  options.client_capacity = 3;
  options.sequence_capacity = 6;
  options.root_capacity = 3;
  options.credits_per_client = 4;
  options.notices_per_client = 4;
  options.device_host_transfers = 2;
  options.host_disk_transfers = 2;
  options.sequence_tokens_max = 200;
  return options;
}

void check_as_a_client_would(std::span<const std::byte> bytes) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
                                 16, 4'096);
  KV_CHECK(wire::VerifyReplyBuffer(verifier));
}

}  // namespace

EngineProgram::EngineProgram(std::span<const std::uint8_t> bytes)
    : bytes_(bytes), engine_(options()), encoder_({1, 2}) {}

std::uint8_t EngineProgram::take() {
  if (bytes_.empty()) return 0;
  const std::uint8_t byte = bytes_.front();
  bytes_ = bytes_.subspan(1);
  return byte;
}

// Few different tokens, so that prefixes meet.
std::vector<std::uint32_t> EngineProgram::take_tokens() {
  constexpr std::array<std::uint32_t, 4> kDiffersAt{64, 64, 9, 16};
  const std::uint32_t count = take_below(32);
  const std::uint32_t differs_at = kDiffersAt[take_below(kDiffersAt.size())];
  std::vector<std::uint32_t> tokens(count);
  for (std::uint32_t i = 0; i < count; ++i) tokens[i] = i < differs_at ? i : i + 1'000;
  return tokens;
}

void EngineProgram::run() {
  // A few clients with their pool, as every service has soon.
  for (std::uint64_t client = 1; client <= kClients; ++client) enter(client);
  while (!bytes_.empty()) event();
  for (int round = 0; round < kContinuesMax && (!transfers_.empty() || !syncs_.empty()); ++round) {
    if (!transfers_.empty()) end_transfer(0, 0);
    if (!syncs_.empty()) end_sync(true);
  }
  KV_CHECK(transfers_.empty() && syncs_.empty());
  for (std::uint64_t client = 1; client <= kClients; ++client) {
    step(core::ClientGone{ClientId(client)});
  }
  for (int round = 0; round < kContinuesMax && !transfers_.empty(); ++round) end_transfer(0, 0);
  check_invariants();
  // Nothing is left of any client.
  KV_CHECK(engine_.sequence_count() == 0);
  KV_CHECK(engine_.transfer_count() == 0);
  for (const core::TierStatus& tier : engine_.status().tiers) {
    KV_CHECK(tier.held == 0 && tier.fenced == 0 && tier.arriving == 0 && tier.covered == 0);
    KV_CHECK(tier.free + tier.cached == tier.slots);
  }
}

void EngineProgram::event() {
  const std::uint32_t kind = take_below(32);
  if (kind == 0) return raw_frame();
  if (kind == 1) {
    // A program that starts again; or one that was not gone.
    const std::uint64_t client = 1 + take_below(kClients);
    if (take_below(4) != 0) step(core::ClientGone{ClientId(client)});
    return enter(client);
  }
  if (kind == 2) return time_passes();
  if (kind == 3) {
    const std::uint8_t byte = take();
    if (byte >= 224) step(core::ClientGone{ClientId(1 + take_below(kClients))});
    if (byte < 8) {
      ++counts_.disk_offs;
      step(core::DiskOff{});
    }
    return;
  }
  if (kind == 4) {
    if (!syncs_.empty()) end_sync(take_below(4) != 0);
    return;
  }
  if (kind == 11) return repeat_report(take());
  if (kind < 11) {
    if (transfers_.empty()) return;
    const std::uint8_t byte = take();
    return end_transfer(byte % transfers_.size(), byte < 224 ? 0 : take());
  }
  request(1 + take_below(kClients), take());
}

// Mostly moments; now and then long enough for a lease to end, unless nobody could be heard.
void EngineProgram::time_passes() {
  const std::uint8_t byte = take();
  now_ += std::chrono::milliseconds(byte >= 240 ? 11'000 : byte);
  const bool is_pause = byte % 4 == 1;
  counts_.pauses += is_pause ? 1 : 0;
  step(core::Tick{.unheard = std::chrono::milliseconds(is_pause ? 100 * take() : 0)});
}

void EngineProgram::attach(std::uint64_t client) {
  const bool is_admin = take_below(4) == 3;
  step(core::ClientAttached{.client = ClientId(client),
                            .role = is_admin ? core::ClientRole::admin : core::ClientRole::runner,
                            .tenant = client == 3 ? "another tenant" : "tenant",
                            .process_id = client});
}

// As a program that starts: without a pool it could open nothing.
void EngineProgram::enter(std::uint64_t client) {
  attach(client);
  request(client, 0);
  request(client, 1);
}

void EngineProgram::raw_frame() {
  Frame frame(std::min<std::size_t>(bytes_.size(), take()));
  for (std::byte& byte : frame) byte = static_cast<std::byte>(take());
  submit(frame);
}

void EngineProgram::request(std::uint64_t client, std::uint8_t kind) {
  FrameHeader header{.client = client, .request = last_request_[client] + 1};
  const std::uint8_t oddity = take();
  header.notices_acknowledged = oddity % 8;
  if (oddity >= 252) header.request += oddity - 251U;         // requests got lost
  if (oddity < 4 && header.request > 1) header.request -= 1;  // a repeated one
  last_request_[client] = std::max(last_request_[client], header.request);
  submit(request_of_kind(kind % 32, header));
}

Frame EngineProgram::request_of_kind(std::uint32_t kind, const FrameHeader& header) {
  const auto simple = [&](RequestBody type, auto make) {
    return request_frame(type, make, header);
  };
  switch (kind) {
    case 0:
      return simple(RequestBody::Hello, [](FlatBufferBuilder& builder) {
        return wire::CreateHello(builder, 1, builder.CreateString("fuzz"));
      });
    case 1:
      return attach_pool(header);
    case 2:
      return simple(RequestBody::Heartbeat, [](auto& b) { return wire::CreateHeartbeat(b); });
    case 3:
      if (take() < 248) return step_frame(header);
      return simple(RequestBody::Bye, [](auto& b) { return wire::CreateBye(b); });
    case 4:
      return simple(RequestBody::Status, [](auto& b) { return wire::CreateStatus(b); });
    case 5:
      return simple(RequestBody::Tree,
                    [this](auto& b) { return wire::CreateTree(b, take_below(20)); });
    case 6:
      return simple(RequestBody::Demote, [this](auto& b) {
        return wire::CreateDemote(b, static_cast<wire::Tier>(take_below(4)));
      });
    case 7:
      return simple(RequestBody::Flush, [](auto& b) { return wire::CreateFlush(b); });
    case 8:
      return lookup(header);
    case 18:
      return clear(header);
    default:
      break;
  }
  if (kind < 14) return open(header);
  if (kind >= 20) return step_frame(header);
  return simple(RequestBody::Admit, [this](FlatBufferBuilder& builder) {
    const std::uint32_t sequence = take_below(kSequences);
    return wire::CreateAdmit(builder, sequence, take_below(12));
  });
}

Frame EngineProgram::attach_pool(const FrameHeader& header) {
  return request_frame(
      RequestBody::AttachPool,
      [this](FlatBufferBuilder& builder) {
        const std::uint32_t layers = take_below(8) == 7 ? 2 : 1;
        const std::vector<wire::LayerGroup> groups(
            take_below(4) == 3 ? 2 : 1, wire::LayerGroup(0, 0, 0, layers, 1, 8, 8, 0, 0));
        const auto vector = builder.CreateVectorOfStructs(groups);
        return wire::CreateAttachPool(builder, wire::CreateLayout(builder, kBlockTokens, vector));
      },
      header);
}

Frame EngineProgram::open(const FrameHeader& header) {
  return request_frame(
      RequestBody::Open,
      [this](FlatBufferBuilder& builder) {
        const std::uint8_t options = take();
        const auto tokens = builder.CreateVector(take_tokens());
        flatbuffers::Offset<wire::Namespace> fields;
        if (options % 8 != 0) {
          const std::vector<std::uint8_t> weights(1, options / 8 % 2);
          fields = wire::CreateNamespace(builder, builder.CreateVector(weights));
        }
        return wire::CreateOpen(builder, take_below(kSequences), fields, tokens, options >= 224,
                                options % 32 != 1);
      },
      header);
}

Frame EngineProgram::lookup(const FrameHeader& header) {
  return request_frame(
      RequestBody::Lookup,
      [this](FlatBufferBuilder& builder) {
        const std::vector<std::uint8_t> weights(1, static_cast<std::uint8_t>(take_below(2)));
        const auto fields = wire::CreateNamespace(builder, builder.CreateVector(weights));
        const auto tokens = builder.CreateVector(take_tokens());
        return wire::CreateLookup(builder, fields, tokens);
      },
      header);
}

Frame EngineProgram::clear(const FrameHeader& header) {
  const bool sets_epoch = take_below(4) == 0;
  const auto fields = [this](FlatBufferBuilder& builder) {
    const std::vector<std::uint8_t> weights(1, static_cast<std::uint8_t>(take_below(2)));
    return wire::CreateNamespace(builder, builder.CreateVector(weights));
  };
  if (sets_epoch) {
    const auto make = [&](FlatBufferBuilder& builder) {
      const auto set = fields(builder);
      return wire::CreateSetEpoch(builder, set, take_below(4));
    };
    return request_frame(RequestBody::SetEpoch, make, header);
  }
  const auto make = [&](FlatBufferBuilder& builder) {
    flatbuffers::Offset<wire::Namespace> one;
    if (take_below(2) == 0) one = fields(builder);
    const bool all_tiers = take_below(2) == 0;
    const auto tier = static_cast<wire::Tier>(all_tiers ? 0 : take_below(4));
    return wire::CreateClear(builder, all_tiers, tier, one);
  };
  return request_frame(RequestBody::Clear, make, header);
}

Frame EngineProgram::step_frame(const FrameHeader& header) {
  const std::uint64_t step_seq = ++last_step_[header.client];
  const std::uint64_t completed = step_seq - std::min<std::uint64_t>(step_seq, take_below(3));
  std::vector<wire::StepItem> items;
  const std::vector<std::uint32_t> tokens = take_tokens();
  const std::uint32_t count = take_below(10);
  for (std::uint32_t i = 0; i < count; ++i) {
    // append, publish, truncate, free, acknowledge: endings are rare.
    constexpr std::array<std::uint8_t, 16> kOps{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3, 4, 4, 4};
    const std::uint8_t op = kOps[take_below(kOps.size())];
    const std::uint32_t sequence = take_below(kSequences);
    const std::uint32_t first = take_below(64);
    const std::uint32_t value = take_below(40);
    if (op == 0) {
      // Mostly inside of the tokens; what reaches beyond them is refused as a whole.
      items.emplace_back(sequence, op, first / 4, value / 8, 0);
    } else {
      items.emplace_back(sequence, op, 0, 0, op == 3 ? 0 : value);
    }
  }
  return request_frame(
      RequestBody::Step,
      [&](FlatBufferBuilder& builder) {
        const auto item_vector = builder.CreateVectorOfStructs(items);
        const auto token_vector = builder.CreateVector(tokens);
        return wire::CreateStep(builder, step_seq, completed, item_vector, token_vector);
      },
      header);
}

void EngineProgram::submit(std::span<const std::byte> frame) {
  const auto decoded = decoder_.decode(frame);
  if (!decoded) {
    ++counts_.refused_frames;
    return;
  }
  ++counts_.requests;
  open_requests_.insert({decoded->envelope.client, decoded->envelope.request});
  step(decoded->input);
}

void EngineProgram::end_transfer(std::size_t index, std::uint8_t outcomes) {
  const auto [transfer, keys] = transfers_[index];
  transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(index));
  last_ended_ = transfer;
  std::vector<core::BlockOutcome> results(transfer.block_count, core::BlockOutcome::ok);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (((outcomes >> (i % 8)) & 1U) == 0) continue;
    results[i] = static_cast<core::BlockOutcome>(1 + outcomes % (core::kBlockOutcomeCount - 1));
    // Copies out of the device make the checksum: there is none yet that could be wrong.
    const bool is_first_copy = transfer.from == Tier::device;
    if (is_first_copy && results[i] == core::BlockOutcome::corrupt) {
      results[i] = core::BlockOutcome::io_error;
    }
    broken_keys_.insert(keys[i]);
  }
  std::vector<std::uint32_t> checksums;
  if (transfer.from == Tier::device) checksums.assign(transfer.block_count, 0x12345678U);
  step(core::TransferDone{.id = transfer.id, .outcomes = results, .checksums = checksums});
}

// Of one that was told already: it changes nothing, whatever it says now.
void EngineProgram::repeat_report(std::uint8_t outcomes) {
  if (last_ended_.id.is_none()) return;
  ++counts_.repeated_reports;
  const std::vector<core::BlockOutcome> results(
      last_ended_.block_count,
      static_cast<core::BlockOutcome>(outcomes % core::kBlockOutcomeCount));
  std::vector<std::uint32_t> checksums;
  if (last_ended_.from == Tier::device) checksums.assign(last_ended_.block_count, outcomes);
  const std::uint64_t before = world::state_digest(engine_);
  step(core::TransferDone{.id = last_ended_.id, .outcomes = results, .checksums = checksums});
  KV_CHECK(world::state_digest(engine_) == before);
}

void EngineProgram::end_sync(bool ok) {
  const std::uint64_t id = syncs_.front();
  syncs_.pop_front();
  step(core::DiskSynced{.id = id, .ok = ok});
}

void EngineProgram::step(const core::InputView& input) {
  actions_.clear();
  engine_.step(now_, input, actions_);
  carry_out();
  for (int i = 0; actions_.continue_wanted; ++i) {
    KV_CHECK(i < kContinuesMax);
    actions_.clear();
    engine_.step(now_, core::Continue{}, actions_);
    carry_out();
  }
  // The checkers count everything anew: at every step they would be nearly all of the run.
  constexpr std::uint32_t kStepsPerCheck = 8;
  if (++steps_ % kStepsPerCheck == 0) check_invariants();
}

void EngineProgram::carry_out() {
  for (const core::StartTransfer& transfer : actions_.transfers) {
    KV_CHECK(transfer.block_count > 0 && transfer.block_count <= core::kTransferBlocksMax);
    KV_CHECK(transfer.first_block + transfer.block_count <= actions_.transfer_blocks.size());
    Transfer& begun = transfers_.emplace_back();
    begun.start = transfer;
    for (std::uint32_t i = 0; i < transfer.block_count; ++i) {
      begun.keys.push_back(actions_.transfer_blocks[transfer.first_block + i].key);
    }
    ++counts_.transfers;
  }
  for (const core::SyncDisk& sync : actions_.syncs) syncs_.push_back(sync.id);
  for (const core::Reply& reply : actions_.replies) {
    KV_CHECK(!reply.request.is_none());
    open_requests_.erase({reply.client, reply.request});
    check_as_a_client_would(encoder_.encode(reply, engine_.unacknowledged(reply.client)));
    ++counts_.replies;
    if (reply.error.code == ErrorCode::ok) ++counts_.ok_replies;
  }
  check_as_a_client_would(encoder_.encode_notices(actions_.notices));
}

void EngineProgram::check_invariants() {
  const std::vector<std::string> broken = world::check(engine_, {.broken_keys = &broken_keys_});
  for (const std::string& line : broken) std::fputs((line + "\n").c_str(), stderr);
  KV_CHECK(broken.empty());
}

}  // namespace kv::testing
