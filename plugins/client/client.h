// Client: a Session over the wire, and the administrator's verbs beside it.
//
// Owner: the program; destruction says Bye, unmaps the pool and never hangs (about a quarter of a
// second at most). Threads: one caller at a time; a heartbeat thread of its own keeps the lease.
// Cost: one message each way a call, about 35 us.
//
// Errors that end the attachment, after which every call fails alike until reattach():
//   stale        the service restarted, the lease expired (this process did not run for too long),
//                or this process is a forked child: the client is its parent's;
//   unavailable  the service is gone.
// After `deadline` of open or step it is unknown whether the call took effect; admit can be called
// again and goes on where it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/result.h"
#include "plugins/client/admin.h"
#include "plugins/client/messages.h"
#include "plugins/client/pool_memory.h"
#include "plugins/client/session.h"
#include "plugins/client/step_batch.h"
#include "plugins/client/step_numbers.h"

namespace kv::client {

class Connection;

class Client final : public Session {
 public:
  enum class Role : std::uint8_t { runner, admin };
  struct Options {
    std::string dir;  // of the service; empty: default_dir()
    std::string
        endpoint;  // ipc:// of the ROUTER socket; empty: in dir. The attach socket lies beside it
    std::string name = "client";  // for people: shown by status
    Role role = Role::runner;
    std::uint64_t instance = 0;
    std::uint32_t rank = 0;
    Deadline deadline = in(std::chrono::seconds(5));  // of connect
  };
  // fails: unavailable (no service there), denied, mismatch (protocol), deadline.
  [[nodiscard]] static Result<std::unique_ptr<Client>> connect(const Options& options);
  ~Client() override;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  Client(Client&&) = delete;
  Client& operator=(Client&&) = delete;

  // A new attachment, as a new client: sequences and the pool's slots are gone. The old pool stays
  // mapped until attach_pool, but nothing may be written there: the service was told so.
  [[nodiscard]] Result<void> reattach(Deadline deadline);

  // A second call maps the pool anew and ends the first mapping.
  [[nodiscard]] Result<Pool> attach_pool(const KvLayout& layout, Deadline deadline) override;
  // Maps the host tier's memory for reading: one arena for all clients of this user. Which bytes in
  // it mean what is the service's knowledge alone. A second call ends the first mapping. fails:
  // unavailable (the tier is off), deadline.
  [[nodiscard]] Result<std::span<const std::byte>> attach_arena(Deadline deadline);
  // After an error the sequence may be open with a part of its tokens: free it.
  [[nodiscard]] Result<void> open(SequenceId sequence, const NamespaceFields& fields,
                                  std::span<const Token> tokens, const OpenOptions& options,
                                  Deadline deadline) override;
  [[nodiscard]] Result<Admission> admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                        Deadline deadline) override;
  [[nodiscard]] Result<StepOutcome> step(const StepRequest& request, Deadline deadline) override;
  [[nodiscard]] bool held_its_blocks() override;

  // Changes nothing. fails: too_large (over 65,536 tokens), unavailable (no pool was ever
  // attached).
  [[nodiscard]] Result<LookupHits> lookup(const NamespaceFields& fields,
                                          std::span<const Token> tokens, Deadline deadline);
  // Where each token of a prompt would come from, and why those that are computed are; changes
  // nothing. For admins. fails: as lookup.
  [[nodiscard]] Result<WhyAnswer> why(const NamespaceFields& fields, std::span<const Token> tokens,
                                      Deadline deadline);
  [[nodiscard]] Result<ServiceStatus> status(Deadline deadline);
  [[nodiscard]] Result<TreeView> tree(std::uint32_t node_limit, Deadline deadline);
  // Saves what only `tier` holds to the tier below, then drops what may go.
  [[nodiscard]] Result<DemoteOutcome> demote(Tier tier, Deadline deadline);
  // Saves everything that can be kept to the disk and makes it durable.
  [[nodiscard]] Result<FlushOutcome> flush(Deadline deadline);
  // Forgets what is cached of a namespace, or of all (null): in one tier, or in all (nullopt), and
  // then durably. Running sequences go on and publish nothing of it any more. For admins.
  [[nodiscard]] Result<ClearOutcome> clear(std::optional<Tier> tier, const NamespaceFields* fields,
                                           Deadline deadline);
  // The namespace has new content from here on (weights): clears it, once an epoch. 0: the next
  // one. For admins. fails: stale (a newer epoch was set).
  [[nodiscard]] Result<ClearOutcome> set_epoch(const NamespaceFields& fields, std::uint64_t epoch,
                                               Deadline deadline);

  [[nodiscard]] Id128 boot() const;  // of the service; zero when not attached

 private:
  // An admission that was asked for and did not return: its request, and the reply where it came.
  struct Pending {
    std::optional<RequestId> request;
    std::uint32_t max_new_tokens = 0;
    std::optional<AdmitAnswer> answer;
  };

  explicit Client(const Options& options);
  [[nodiscard]] Result<Connection*> attached() const;
  void end_connection();
  [[nodiscard]] Result<void> take_step_answer(const StepAnswer& answer, StepOutcome& outcome) const;
  [[nodiscard]] Result<void> check_admission(const Admission& admission) const;

  Options options_;
  std::unique_ptr<Connection> connection_;  // null after a reattach that failed
  PoolMemory memory_;
  PoolMemory arena_;
  std::vector<Pool::Group> groups_;  // of the attached pool; empty without one
  std::map<SequenceId, Pending> pending_;
  StepNumbers numbers_;
  StepBatch batch_;
};

}  // namespace kv::client
