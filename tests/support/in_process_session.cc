#include "tests/support/in_process_session.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "allocator/base/check.h"

namespace kv::testing {
namespace {

client::Account account_of(const core::Account& account) {
  return {account.prompt_tokens, account.hit_tokens, account.computed_tokens,
          account.generated_tokens};
}

struct Batch {
  std::vector<core::StepItem> items;
  std::vector<Token> tokens;
  std::vector<SequenceId> children;
};

Batch batch_of(const client::StepRequest& request) {
  Batch batch;
  const auto add = [&](SequenceId sequence, core::StepOp op, std::uint32_t value) {
    batch.items.push_back({sequence, op, 0, 0, value});
  };
  for (const auto& item : request.acknowledge) {
    add(item.sequence, core::StepOp::acknowledge, item.table_version);
  }
  for (const auto& item : request.append) {
    batch.items.push_back({item.sequence, core::StepOp::append,
                           static_cast<std::uint32_t>(batch.tokens.size()),
                           static_cast<std::uint32_t>(item.tokens.size()), 0});
    batch.tokens.insert(batch.tokens.end(), item.tokens.begin(), item.tokens.end());
  }
  for (const auto& item : request.publish) {
    add(item.sequence, core::StepOp::publish, item.computed_tokens);
  }
  for (const auto& item : request.truncate) {
    add(item.sequence, core::StepOp::truncate, item.token_count);
  }
  for (const auto& item : request.drop) {
    batch.items.push_back(
        {item.sequence, core::StepOp::drop, item.first_token, item.token_count, 0});
  }
  for (const auto& item : request.fork) {
    batch.items.push_back({item.parent, core::StepOp::fork, 0, item.max_new_tokens,
                           static_cast<std::uint32_t>(batch.children.size())});
    batch.children.push_back(item.child);
  }
  for (const SequenceId sequence : request.preempt) add(sequence, core::StepOp::preempt, 0);
  for (const SequenceId sequence : request.free) add(sequence, core::StepOp::free, 0);
  return batch;
}

client::StepOutcome outcome_of(const core::StepReply& reply, const Batch& batch) {
  client::StepOutcome outcome;
  for (const auto& failure : reply.failures) {
    outcome.failures.push_back({batch.items.at(failure.item).sequence, failure.error});
  }
  for (const auto& delta : reply.deltas) {
    const auto slots = std::span(reply.slots).subspan(delta.slot_offset, delta.slot_count);
    outcome.deltas.push_back({delta.sequence,
                              delta.group,
                              delta.version,
                              delta.first_block,
                              {slots.begin(), slots.end()}});
  }
  for (const auto& ended : reply.ended) {
    outcome.ended.push_back({ended.sequence, account_of(ended.account)});
  }
  for (const auto& copy : reply.copies) {
    outcome.copies.push_back(
        {copy.sequence, copy.group, copy.from_slot, copy.to_slot, copy.token_count});
  }
  return outcome;
}

}  // namespace

InProcessSession::InProcessSession(InProcessService& service, std::string_view tenant)
    : service_(service),
      boot_(service.boot()),
      client_(service.attach(core::ClientRole::runner, tenant)) {
  core::Hello hello;
  hello.header = next_header();
  hello.protocol_version = 1;
  hello.name = "in-process";
  service_.drive(hello);
  KV_CHECK(service_.take_reply(client_, hello.header.request).error.code == ErrorCode::ok);
}

InProcessSession::~InProcessSession() {
  if (boot_ != service_.boot()) return;
  service_.drive(core::Bye{next_header()});
  service_.drive(core::ClientGone{client_});
}

core::RequestHeader InProcessSession::next_header() {
  return {client_, RequestId{++last_request_}, last_notice_};
}

template <class Request>
Result<core::Reply> InProcessSession::ask(Request request, client::Deadline deadline) {
  if (boot_ != service_.boot()) {
    return Error{ErrorCode::stale, "service restarted: attach again", {}};
  }
  if (std::chrono::steady_clock::now() >= deadline) {
    return Error{ErrorCode::deadline, "in-process call", {}};
  }
  request.header = next_header();
  service_.drive(request);
  notices_ = service_.take_notices(client_);
  if (!notices_.empty()) last_notice_ = notices_.back().number;
  core::Reply reply = service_.take_reply(client_, request.header.request);
  if (reply.error.code != ErrorCode::ok) return reply.error;
  return reply;
}

Result<client::Pool> InProcessSession::attach_pool(const KvLayout& layout,
                                                   client::Deadline deadline) {
  core::AttachPool request;
  request.layout = &layout;
  KV_TRY(const core::Reply reply, ask(request, deadline));
  const auto& body = std::get<core::AttachPoolReply>(reply.body);
  client::Pool pool;
  pool.memory = service_.executor().device_memory();
  KV_CHECK(pool.memory.size() >= body.pool_bytes);
  for (const auto& group : body.groups) {
    pool.groups.push_back({group.offset, group.slot_bytes, group.slot_count});
  }
  return pool;
}

Result<void> InProcessSession::open(SequenceId sequence, const NamespaceFields& fields,
                                    std::span<const Token> tokens,
                                    const client::OpenOptions& options, client::Deadline deadline) {
  core::Open request;
  request.sequence = sequence;
  request.fields = &fields;
  request.skip_read = options.skip_read;
  request.accept_rewrite = options.accept_rewrite;
  do {
    const std::size_t count = std::min<std::size_t>(tokens.size(), core::kTokensPerMessageMax);
    request.tokens = tokens.first(count);
    tokens = tokens.subspan(count);
    KV_TRY([[maybe_unused]] const core::Reply reply, ask(request, deadline));
    request.first = false;
    request.fields = nullptr;
  } while (!tokens.empty());
  return {};
}

Result<client::Admission> InProcessSession::admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                                  client::Deadline deadline) {
  for (;;) {
    core::Admit request;
    request.sequence = sequence;
    request.max_new_tokens = max_new_tokens;
    KV_TRY(core::Reply reply, ask(request, deadline));
    auto& body = std::get<core::AdmitReply>(reply.body);
    client::Admission admission{account_of(body.account), body.table_version, body.block_count,
                                std::move(body.slots)};
    if (body.ready) return admission;
    const auto ready = std::ranges::find_if(notices_, [&](const core::Notice& notice) {
      return notice.kind == core::NoticeKind::sequence_ready && notice.sequence == sequence;
    });
    KV_CHECK(ready != notices_.end());  // transfers end within the call
    if (ready->code == ErrorCode::ok) {
      admission.account = account_of(ready->account);
      return admission;
    }
  }
}

Result<client::StepOutcome> InProcessSession::step(const client::StepRequest& request,
                                                   client::Deadline deadline) {
  const Batch batch = batch_of(request);
  core::Step step;
  step.step_seq = request.step_seq;
  step.completed_step = request.completed_step;
  step.items = batch.items;
  step.tokens = batch.tokens;
  step.children = batch.children;
  KV_TRY(const core::Reply reply, ask(step, deadline));
  return outcome_of(std::get<core::StepReply>(reply.body), batch);
}

}  // namespace kv::testing
