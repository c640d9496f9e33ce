#include "tests/support/in_process_service.h"

#include <chrono>
#include <utility>
#include <variant>

#include "allocator/base/check.h"
#include "cachesvc/core/prefix_cache.h"
#include "tests/support/in_process_session.h"

namespace kv::testing {

// A report that waits for its turn; everything it needs is in it.
struct InProcessService::Pending {
  TransferId transfer;
  InProcessExecutor::Outcome outcome;
  bool is_sync = false;
  std::uint64_t sync_id = 0;
  bool sync_ok = false;
};

InProcessService::InProcessService(const Options& options) : options_(options) {
  start();
  recover();
}
InProcessService::~InProcessService() = default;

void InProcessService::start() {
  ++boot_;
  engine_ = std::make_unique<core::Engine>(options_.engine);
  executor_ = InProcessExecutor{};
  replies_.clear();
  notices_.clear();
  pending_.clear();
  admin_request_ = 0;
  admin_ = attach(core::ClientRole::admin, "admin");
}

ClientId InProcessService::attach(core::ClientRole role, std::string_view tenant) {
  const ClientId client{next_client_++};
  drive(core::ClientAttached{client, role, tenant, 1});
  return client;
}

std::unique_ptr<client::Session> InProcessService::session(std::string_view tenant) {
  return std::make_unique<InProcessSession>(*this, tenant);
}

void InProcessService::open_disk(const KvLayout& layout) {
  const std::uint64_t bytes = options_.engine.tier_bytes[tier_index(Tier::disk)];
  if (bytes == 0) return;
  if (options_.disk_directory.empty()) {
    memory_disk_layout_ = layout;
    executor_.set_disk(&memory_disk_);
    return;
  }
  DiskStore::Options options;
  options.directory = options_.disk_directory;
  options.bytes = bytes;
  auto store = DiskStore::open(options, layout);
  KV_CHECK(store.has_value());
  disk_ = std::move(*store);
  executor_.set_disk(disk_.get());
}

std::optional<KvLayout> InProcessService::disk_layout() const {
  if (options_.disk_directory.empty()) return memory_disk_layout_;
  auto layout = DiskStore::peek(options_.disk_directory);
  KV_CHECK(layout.has_value());
  return *layout;
}

void InProcessService::restart() {
  disk_.reset();
  start();
  recover();
}

// What a service does at its start, when its disk holds something.
void InProcessService::recover() {
  if (options_.engine.tier_bytes[tier_index(Tier::disk)] == 0) return;
  const std::optional<KvLayout> layout = disk_layout();
  if (!layout) return;
  open_disk(*layout);
  BlobStore& store = disk_ != nullptr ? *disk_ : static_cast<BlobStore&>(memory_disk_);
  drive(core::DiskFormat{&*layout});
  executor_.make_pools(*engine_);
  memory_disk_.restart_scan();
  for (bool last = false; !last;) {
    auto scanned = store.scan_next(core::kRecoveredEntriesMax);
    KV_CHECK(scanned.has_value());
    last = scanned->empty();
    std::vector<core::RecoveredEntry> entries;
    std::vector<Token> tokens;
    for (const auto& [identity, block] : *scanned) {
      entries.push_back({identity.key, identity.parent_key, identity.namespace_digest,
                         identity.depth, identity.group, identity.slot, identity.generation,
                         identity.checksum});
      tokens.insert(tokens.end(), block.begin(), block.end());
    }
    drive(core::Recovered{entries, tokens, last});
  }
}

void InProcessService::step(const core::InputView& input) {
  now_ += std::chrono::microseconds(1);
  actions_.clear();
  engine_->step(now_, input, actions_);
  carry_out();
}

void InProcessService::carry_out() {
  if (actions_.format_defined != nullptr) {
    executor_.make_pools(*engine_);
    open_disk(*actions_.format_defined);
  }
  executor_.erase(actions_.erases);
  for (const core::StartTransfer& start : actions_.transfers) {
    pending_.push_back({start.id, executor_.transfer(start, actions_), false, 0, false});
  }
  for (const core::SyncDisk& sync : actions_.syncs) {
    pending_.push_back({TransferId::none(), {}, true, sync.id, true});
  }
  for (core::Reply& reply : actions_.replies) {
    replies_[{reply.client, reply.request}] = std::move(reply);
  }
  for (const core::Notice& notice : actions_.notices) notices_[notice.client].push_back(notice);
}

void InProcessService::drive(const core::InputView& input) {
  step(input);
  while (!pending_.empty() || actions_.continue_wanted) {
    if (pending_.empty()) {
      step(core::Continue{});
      continue;
    }
    const Pending report = std::move(pending_.front());
    pending_.erase(pending_.begin());
    if (report.is_sync) {
      step(core::DiskSynced{report.sync_id, report.sync_ok});
    } else {
      step(core::TransferDone{report.transfer, report.outcome.outcomes, report.outcome.checksums});
    }
  }
}

core::Reply InProcessService::take_reply(ClientId client, RequestId request) {
  auto node = replies_.extract({client, request});
  KV_CHECK(!node.empty());
  return std::move(node.mapped());
}

std::vector<core::Notice> InProcessService::take_notices(ClientId client) {
  return std::exchange(notices_[client], {});
}

core::RequestHeader InProcessService::admin_header() {
  return {admin_, RequestId{++admin_request_}, 0};
}

core::Reply InProcessService::admin_request(core::InputView input) {
  const core::RequestHeader header = admin_header();
  std::visit(
      [&](auto& request) {
        if constexpr (requires { request.header; }) request.header = header;
      },
      input);
  drive(input);
  core::Reply reply = take_reply(header.client, header.request);
  KV_CHECK(reply.error.code == ErrorCode::ok);
  return reply;
}

core::DemoteReply InProcessService::demote(Tier tier) {
  core::Demote request;
  request.tier = tier;
  return std::get<core::DemoteReply>(admin_request(request).body);
}

core::FlushReply InProcessService::flush() {
  return std::get<core::FlushReply>(admin_request(core::Flush{}).body);
}

core::LookupReply InProcessService::lookup(const NamespaceFields& fields,
                                           std::span<const Token> tokens, std::string_view tenant) {
  const ClientId observer = attach(core::ClientRole::observer, tenant);
  core::Lookup request{{observer, RequestId{1}, 0}, &fields, tokens};
  drive(request);
  const core::Reply reply = take_reply(observer, request.header.request);
  KV_CHECK(reply.error.code == ErrorCode::ok);
  drive(core::ClientGone{observer});
  return std::get<core::LookupReply>(reply.body);
}

}  // namespace kv::testing
