// What ends or breaks: clients, the service, its disk; and what happens to loads under way.
#include <chrono>
#include <optional>
#include <utility>

#include "tests/model/random_run.h"

namespace kv::model {

void RandomRun::drop_client(std::size_t index, bool orderly) {
  Client& client = *clients_[index];
  if (orderly && !has_credit(client)) return;
  note(std::string(orderly ? "bye of client " : "death of client ") +
       std::to_string(client.id().value));
  if (orderly) {
    client.bye();
    if (!client.gone()) {
      world_.problem("a Bye was not answered at once");
      return;
    }
    said_bye_.push_back(client.id());
  } else {
    client.die(prng_.below(6));
  }
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
  if (!said_bye_.empty() && prng_.chance(1, 2)) {
    world_.send(core::ClientGone{said_bye_.back()});
    said_bye_.pop_back();
  }
}

void RandomRun::restart() {
  note("the service restarts");
  earlier_lives_.push_back(world_.engine().status().counters);
  earlier_digest_ = digest();
  clients_.clear();
  said_bye_.clear();
  world_.restart();
}

// A store that could not be opened; now and then told of one that works, which must change nothing.
void RandomRun::turn_disk_off() {
  const auto& bytes = world_.options().engine.tier_bytes;
  if (bytes[tier_index(Tier::host)] == 0 || bytes[tier_index(Tier::disk)] == 0) return;
  note("the disk is off");
  if (world_.recovering()) ++events_.disk_off_recovering;
  const bool was_off = world_.disk_off();
  world_.turn_disk_off();
  if (!was_off) ++(world_.disk_off() ? events_.disk_off : events_.disk_off_refused);
}

// One client says nothing for longer than its lease; the others do.
void RandomRun::silence(std::size_t index) {
  note("client " + std::to_string(clients_[index]->id().value) + " is silent for too long");
  for (int i = 0; i < 3; ++i) {
    world_.pass_time(std::chrono::milliseconds(450));
    poll();
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      if (c != index && !clients_[c]->expired() && has_credit(*clients_[c])) {
        clients_[c]->ask(core::Heartbeat{});
      }
    }
  }
}

std::optional<RandomRun::Loading> RandomRun::find_loading() const {
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    for (const auto& [id, sequence] : clients_[c]->sequences()) {
      if (sequence.loading) return Loading{c, &sequence};
    }
  }
  return std::nullopt;
}

// Loads are short and few: what must not break one would seldom meet one by chance alone.
void RandomRun::disturb_load(const Loading& load) {
  Client& client = *clients_[load.client];
  const std::string weights = load.sequence->weights;
  Client* const admin = find_admin();
  switch (prng_.below(7)) {
    case 0:
      note("nothing ends for a while");
      quiet_ = static_cast<std::uint32_t>(5 + prng_.below(20));
      return;
    case 1:
      drop_client(load.client, prng_.chance(1, 2));
      return;
    case 2:
      if (prng_.chance(1, 2)) world_.stall_links(std::chrono::seconds(2));
      silence(load.client);
      return;
    case 3:
      note("what is being loaded is cleared");
      if (admin != nullptr) admin->clear(weights, std::nullopt);
      return;
    case 4:
      note("what is being loaded gets a new epoch");
      if (admin != nullptr) admin->set_epoch(weights, 0);
      return;
    case 5:
      if (client.step_waits() || !has_credit(client)) return;
      note("what is being loaded is freed");
      ++events_.freed_loading;
      client.send_step({{load.sequence->id, core::StepOp::free, {}, 0, false}});
      return;
    default:
      want_the_same(*load.sequence);
      return;
  }
}

// Another sequence of the same prompt, which has to wait for the load.
void RandomRun::want_the_same(const Client::Sequence& loading) {
  const std::vector<Token> tokens = loading.tokens;
  const std::string weights = loading.weights;
  Client& client = *clients_[prng_.below(clients_.size())];
  if (client.role() == core::ClientRole::observer || !has_credit(client)) return;
  note("client " + std::to_string(client.id().value) + " wants what is being loaded");
  open_and_admit(client, weights, tokens);
}

// One that can ask, or null.
RandomRun::Client* RandomRun::find_admin() const {
  for (const auto& client : clients_) {
    const bool is_admin = client->role() == core::ClientRole::admin;
    if (is_admin && !client->expired() && has_credit(*client)) return client.get();
  }
  return nullptr;
}

}  // namespace kv::model
