// HookedSession: passes everything on to another Session; a test may look at what was admitted, act
// right before a step, or keep a run from publishing.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "plugins/client/session.h"

namespace kv::test {

class HookedSession : public client::Session {
 public:
  explicit HookedSession(client::Session& inner) : inner_(inner) {}

  std::function<void()> before_next_step;  // called once
  bool drop_publish = false;               // the cache stays as it is
  std::vector<client::Admission> admissions;

  Result<client::Pool> attach_pool(const KvLayout& layout, client::Deadline deadline) override {
    return inner_.attach_pool(layout, deadline);
  }
  Result<void> open(SequenceId sequence, const NamespaceFields& fields,
                    std::span<const Token> tokens, const client::OpenOptions& options,
                    client::Deadline deadline) override {
    return inner_.open(sequence, fields, tokens, options, deadline);
  }
  Result<client::Admission> admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                  client::Deadline deadline) override {
    auto admission = inner_.admit(sequence, max_new_tokens, deadline);
    if (admission) admissions.push_back(*admission);
    return admission;
  }
  Result<client::StepOutcome> step(const client::StepRequest& request,
                                   client::Deadline deadline) override {
    if (before_next_step) std::exchange(before_next_step, nullptr)();
    if (!drop_publish) return inner_.step(request, deadline);
    client::StepRequest silent = request;
    silent.publish.clear();
    return inner_.step(silent, deadline);
  }

 private:
  client::Session& inner_;
};

}  // namespace kv::test
