#include "cachesvc/shell/client_registry.h"

#include <utility>

namespace kv::shell {

Result<ClientId> ClientRegistry::add(Client client) {
  if (is_full()) return Error{ErrorCode::exhausted, "as many clients as client.capacity", {}};
  const ClientId id = next_;
  next_ = ClientId(next_.value + 1);
  clients_.emplace(id, std::move(client));
  return id;
}

ClientRegistry::Client* ClientRegistry::find(ClientId id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : &found->second;
}

Result<ClientRegistry::Client*> ClientRegistry::authenticate(ClientId id,
                                                             const codec::Id128& secret) {
  Client* const client = find(id);
  if (client == nullptr) return Error{ErrorCode::stale, "unknown client: attach again", "client"};
  if (!codec::equal_secrets(client->secret, secret)) {
    return Error{ErrorCode::denied, "not the secret of this client", "secret"};
  }
  return client;
}

ClientId ClientRegistry::oldest_ended() const {
  ClientId oldest;
  for (const auto& [id, client] : clients_) {
    if (client.has_ended && id < oldest) oldest = id;  // none() is the largest
  }
  return oldest;
}

}  // namespace kv::shell
