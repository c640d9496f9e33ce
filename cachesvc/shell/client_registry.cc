#include "cachesvc/shell/client_registry.h"

#include <utility>

namespace kv::shell {

Result<ClientId> ClientRegistry::add(Client client) {
  if (is_full()) {
    return Error{ErrorCode::exhausted, "as many clients as client.capacity", "client.capacity"};
  }
  if (is_full_of(client.user)) {
    return Error{ErrorCode::exhausted, "as many clients of this user as client.per_user",
                 "client.per_user"};
  }
  ++counts_[client.user];
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

bool ClientRegistry::is_full_of(uid_t user) const {
  const auto count = counts_.find(user);
  return count != counts_.end() && count->second >= capacity_of_user_;
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

ClientId ClientRegistry::in_the_way_of(uid_t user) const {
  ClientId oldest;
  const bool of_user = is_full_of(user);
  if (!of_user && !is_full()) return oldest;
  for (const auto& [id, client] : clients_) {
    if (of_user && client.user != user) continue;
    if (client.has_ended && id < oldest) oldest = id;  // none() is the largest
  }
  return oldest;
}

}  // namespace kv::shell
