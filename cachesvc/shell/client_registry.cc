#include "cachesvc/shell/client_registry.h"

#include <utility>

namespace kv::shell {

Result<ClientId> ClientRegistry::add(Client client) {
  if (is_full()) {
    return Error{ErrorCode::exhausted, "as many clients as client.capacity", "client.capacity"};
  }
  std::size_t& count = counts_[client.user];
  if (count >= capacity_of_user_) {
    return Error{ErrorCode::exhausted, "as many clients of this user as client.per_user",
                 "client.per_user"};
  }
  ++count;
  const ClientId id = next_;
  next_ = ClientId(next_.value + 1);
  clients_.emplace(id, std::move(client));
  return id;
}

void ClientRegistry::remove(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const auto count = counts_.find(found->second.user);
  if (--count->second == 0) counts_.erase(count);
  clients_.erase(found);
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

}  // namespace kv::shell
