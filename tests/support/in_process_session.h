// InProcessSession: a client::Session on an InProcessService: what a runner would do over the wire.
// Owner: the caller; the service outlives it. Threads: none.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cachesvc/core/inputs.h"
#include "plugins/client/session.h"
#include "tests/support/in_process_service.h"

namespace kv::testing {

class InProcessSession final : public client::Session {
 public:
  InProcessSession(InProcessService& service, std::string_view tenant);
  ~InProcessSession() override;
  InProcessSession(const InProcessSession&) = delete;
  InProcessSession& operator=(const InProcessSession&) = delete;
  InProcessSession(InProcessSession&&) = delete;
  InProcessSession& operator=(InProcessSession&&) = delete;

  [[nodiscard]] Result<client::Pool> attach_pool(const KvLayout& layout,
                                                 client::Deadline deadline) override;
  [[nodiscard]] Result<void> open(SequenceId sequence, const NamespaceFields& fields,
                                  std::span<const Token> tokens, const client::OpenOptions& options,
                                  client::Deadline deadline) override;
  [[nodiscard]] Result<client::Admission> admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                                client::Deadline deadline) override;
  [[nodiscard]] Result<client::StepOutcome> step(const client::StepRequest& request,
                                                 client::Deadline deadline) override;

 private:
  [[nodiscard]] core::RequestHeader next_header();
  // The reply of this request, or its error.
  template <class Request>
  [[nodiscard]] Result<core::Reply> ask(Request request, client::Deadline deadline);

  InProcessService& service_;
  std::uint64_t boot_;
  ClientId client_;
  std::uint64_t last_request_ = 0;
  std::uint64_t last_notice_ = 0;
  std::vector<core::Notice> notices_;  // of the last request
};

}  // namespace kv::testing
