// ClientRegistry: who the clients are, by id: secret, tenant, and the ROUTER identity that their
// replies go to. What they own is the Engine's business. Owner: the service. Threads: the loop
// thread only. Bounded by `capacity`. Cost: one hash look-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include <sys/types.h>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "cachesvc/core/inputs.h"
#include "cachesvc/shell/event_loop.h"
#include "cachesvc/wire/id128.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::shell {

class ClientRegistry {
 public:
  struct Client {
    codec::Id128 secret;
    core::ClientRole role = core::ClientRole::runner;
    std::string tenant;
    uid_t user = 0;
    pid_t process = 0;
    std::string identity;    // the newest that a valid request came from; empty before the first
    bool is_unread = false;  // its queue of replies is full
    RequestId bye;           // the last Bye asked for, or none()
    FileDescriptor process_descriptor;  // readable when the process is dead
    EventLoop::Watch process_watch;     // ends before the descriptor
  };

  // `first`: ids count up from it; a start of its own for each boot, so that a client of an earlier
  // boot is unknown and not mistaken for another.
  ClientRegistry(std::size_t capacity, std::size_t capacity_of_user, ClientId first)
      : capacity_(capacity), capacity_of_user_(capacity_of_user), next_(first) {}

  // fails: exhausted (as many clients, or as many of this user, as allowed: the field).
  [[nodiscard]] Result<ClientId> add(Client client);
  void remove(ClientId id);
  // Null: unknown. Valid until the client is removed.
  [[nodiscard]] Client* find(ClientId id);

  // Whose request this is: stale (unknown: attach again), denied (another secret).
  [[nodiscard]] Result<Client*> authenticate(ClientId id, const codec::Id128& secret);

  [[nodiscard]] std::size_t size() const { return clients_.size(); }

 private:
  [[nodiscard]] bool is_full() const { return clients_.size() >= capacity_; }

  std::size_t capacity_, capacity_of_user_;
  ClientId next_;
  std::unordered_map<ClientId, Client> clients_;
  std::unordered_map<uid_t, std::size_t> counts_;  // of clients, by user
};

}  // namespace kv::shell
