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
    pid_t process = 0;
    std::string identity;    // the newest that a valid request came from; empty before the first
    RequestId bye;           // the last Bye asked for, or none()
    bool has_ended = false;  // its Bye was answered
    FileDescriptor process_descriptor;  // readable when the process is dead
    EventLoop::Watch process_watch;     // ends before the descriptor
  };

  // `first`: ids count up from it; a start of its own for each boot, so that a client of an earlier
  // boot is unknown and not mistaken for another.
  ClientRegistry(std::size_t capacity, ClientId first) : capacity_(capacity), next_(first) {}

  // fails: exhausted (as many clients as allowed).
  [[nodiscard]] Result<ClientId> add(Client client);
  void remove(ClientId id) { clients_.erase(id); }
  // Null: unknown. Valid until the client is removed.
  [[nodiscard]] Client* find(ClientId id);

  // Whose request this is: stale (unknown: attach again), denied (another secret).
  [[nodiscard]] Result<Client*> authenticate(ClientId id, const codec::Id128& secret);

  // A client that said Bye and whose process lives on: may be forgotten to make room. none(): no
  // one.
  [[nodiscard]] ClientId oldest_ended() const;
  [[nodiscard]] std::size_t size() const { return clients_.size(); }
  [[nodiscard]] bool is_full() const { return clients_.size() >= capacity_; }

 private:
  std::size_t capacity_;
  ClientId next_;
  std::unordered_map<ClientId, Client> clients_;
};

}  // namespace kv::shell
