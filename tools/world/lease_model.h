// LeaseModel: when leases must end, by an account of its own: how long each client was silent, less
// the time in which nobody could have been heard. Owner: VirtualWorld. Threads: none. Cost:
// O(clients) a Tick.
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include "allocator/base/ids.h"
#include "allocator/base/time_point.h"

namespace kv::world {

class LeaseModel {
 public:
  void attach(TimePoint now, ClientId client) { clients_.emplace(client, Client{now, {}}); }
  void remove(ClientId client) { clients_.erase(client); }
  void hear(TimePoint now, ClientId client) {
    const auto found = clients_.find(client);
    if (found != clients_.end()) found->second = {now, {}};
  }
  // Who is silent for longer than the lease by now; they are clients no more.
  [[nodiscard]] std::set<ClientId> tick(TimePoint now, Duration unheard, Duration lease) {
    std::set<ClientId> ended;
    for (auto& [id, client] : clients_) {
      client.silence += now - client.since - unheard;
      client.silence = std::max(client.silence, Duration::zero());
      client.since = now;
      if (client.silence > lease) ended.insert(id);
    }
    for (const ClientId client : ended) clients_.erase(client);
    return ended;
  }
  void clear() { clients_.clear(); }

 private:
  struct Client {
    TimePoint since;   // the last Tick or request
    Duration silence;  // until then
  };
  std::map<ClientId, Client> clients_;
};

}  // namespace kv::world
