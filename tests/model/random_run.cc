#include "tests/model/random_run.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace kv::model {
namespace {

constexpr std::size_t kClientsMax = 4;

}  // namespace

world::VirtualWorld::Options RandomRun::options_of(std::uint64_t seed) {
  Prng prng(seed * 2 + 1);
  world::VirtualWorld::Options options;
  options.seed = seed;
  options.layout.block_tokens = 1U << prng.below(3);
  LayerGroup group;
  group.layer_count = group.kv_head_count = group.head_dim_k = group.head_dim_v = 1;
  const std::uint64_t groups = 1;
  options.layout.groups.assign(groups, group);
  const std::uint64_t bytes = block_bytes(options.layout, GroupId{0}) * groups;
  auto& engine = options.engine;
  const std::uint64_t host_slots = prng.chance(1, 8) ? 0 : 2 + prng.below(19);
  const std::uint64_t disk_slots = prng.chance(1, 8) ? 0 : 2 + prng.below(19);
  engine.tier_bytes = {(4 + prng.below(17)) * bytes, host_slots * bytes, disk_slots * 4096 * groups,
                       0};
  engine.client_capacity = 64;
  engine.sequence_capacity = static_cast<std::uint32_t>(4 + prng.below(20));
  engine.root_capacity = 8;
  engine.credits_per_client = static_cast<std::uint32_t>(2 + prng.below(6));
  engine.notices_per_client = 16;
  engine.device_host_transfers = static_cast<std::uint32_t>(1 + prng.below(4));
  engine.host_disk_transfers = static_cast<std::uint32_t>(1 + prng.below(4));
  engine.sequence_tokens_max = 64;
  engine.lease = std::chrono::seconds(1);
  engine.hash_seed = seed;
  engine.write_through = prng.chance(2, 3);
  if (prng.chance(3, 4)) options.faults = {100, 50, 60, 100, 50};
  return options;
}

RandomRun::RandomRun(std::uint64_t seed) : prng_(seed), world_(options_of(seed)) {}

void RandomRun::note(const std::string& text) {
  if (log_kept_) log_.push_back("before step " + std::to_string(world_.steps() + 1) + ": " + text);
}

core::Counters RandomRun::counters() const {
  using Words = std::array<std::uint64_t, sizeof(core::Counters) / sizeof(std::uint64_t)>;
  auto sum = std::bit_cast<Words>(world_.engine().status().counters);
  for (const core::Counters& life : earlier_lives_) {
    const auto words = std::bit_cast<Words>(life);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  return std::bit_cast<core::Counters>(sum);
}

void RandomRun::run(std::uint32_t operations) {
  for (std::uint32_t i = 0; i < operations && problems().empty(); ++i) operate();
  if (problems().empty()) drain();
}

void RandomRun::poll() {
  for (const auto& client : clients_) client->poll();
}

void RandomRun::operate() {
  const std::uint64_t choice = prng_.below(100);
  if (clients_.size() < 2 || (choice == 0 && clients_.size() < kClientsMax)) {
    add_client();
  } else if (choice < 20) {
    note("run_next");
    for (std::uint64_t n = 1 + prng_.below(3); n > 0; --n) world_.run_next();
  } else if (choice < 24) {
    operate_time();
  } else if (choice == 24 && prng_.chance(1, 4)) {
    restart();
  } else {
    const std::size_t index = prng_.below(clients_.size());
    if (choice == 25 || (clients_[index]->expired() && prng_.chance(1, 2))) {
      drop_client(index, prng_.chance(1, 2));
    } else {
      operate_client(*clients_[index]);
    }
  }
  poll();
}

void RandomRun::operate_time() {
  if (prng_.chance(19, 20)) {
    note("time passes");
    world_.pass_time(std::chrono::microseconds(prng_.below(50'000)));
    return;
  }
  // One client says nothing for longer than its lease; the others do.
  note("a client is silent for too long");
  const std::size_t silent = prng_.below(clients_.size());
  for (int i = 0; i < 3; ++i) {
    world_.pass_time(std::chrono::milliseconds(450));
    poll();
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      if (c != silent && !clients_[c]->expired() && has_credit(*clients_[c])) {
        clients_[c]->ask(core::Heartbeat{});
      }
    }
  }
}

void RandomRun::add_client() {
  note("a client attaches");
  auto role = prng_.chance(1, 10) ? core::ClientRole::observer : core::ClientRole::runner;
  if (prng_.chance(1, 4)) role = core::ClientRole::admin;
  const std::string tenant = prng_.chance(9, 10) ? "t0" : "t1";
  clients_.push_back(std::make_unique<Client>(world_, tenant, role));
  if (role != core::ClientRole::observer) clients_.back()->attach_pool();
}

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
  clients_.clear();
  said_bye_.clear();
  world_.restart();
}

// Mostly two or three sequences fit the device.
std::uint64_t RandomRun::prompt_tokens_max() const {
  const auto& options = world_.options();
  const std::uint64_t bytes =
      block_bytes(options.layout, GroupId{0}) * options.layout.groups.size();
  const std::uint64_t slots = options.engine.tier_bytes[tier_index(Tier::device)] / bytes;
  return std::max<std::uint64_t>(2, slots * options.layout.block_tokens / 2);
}

bool RandomRun::has_credit(const Client& client) const {
  return client.outstanding() < world_.options().engine.credits_per_client;
}

void RandomRun::operate_client(Client& client) {
  if (client.expired()) {
    // It does not know, or does not act on it: whatever it asks is refused.
    if (has_credit(client)) client.ask_anything(core::Heartbeat{});
    return;
  }
  const std::uint64_t choice = prng_.below(100);
  if (choice < 15) {
    note("steps complete");
    client.complete_steps(1 + prng_.below(3));
    return;
  }
  if (choice < 18) {
    note("a request is repeated");
    client.repeat(prng_.below(4));
    return;
  }
  if (!has_credit(client)) {
    note("a request beyond the credits");
    client.ask_anything(core::Heartbeat{});
    return;
  }
  if (client.role() == core::ClientRole::observer) {
    ask_as_observer(client);
  } else if (choice < 33) {
    open(client);
  } else if (choice < 48) {
    admit(client);
  } else if (choice < 83) {
    step(client);
  } else if (choice < 87) {
    lookup(client);
  } else if (choice < 95) {
    ask_admin(client);
  } else {
    ask_nonsense(client);
  }
}

// Faults stop; everybody ends; then nothing may be left.
void RandomRun::drain() {
  note("drain");
  world_.stop_faults();
  world_.run_all();
  poll();
  for (const auto& client : clients_) wind_down(*client);
  world_.run_all();
  poll();
  while (!clients_.empty() && problems().empty()) drop_client(clients_.size() - 1, true);
  for (const ClientId client : said_bye_) world_.send(core::ClientGone{client});
  world_.run_all();
  if (!problems().empty()) return;
  if (world_.unanswered() != 0) world_.problem("15: requests were never answered");
  for (const std::string& text : world_.check_drained()) world_.problem(text);
  world_.check_replay();
}

void RandomRun::wind_down(Client& client) {
  for (int round = 0; round < 3 && !client.expired() && problems().empty(); ++round) {
    client.complete_steps(1'000'000);
    if (client.role() == core::ClientRole::observer) return;
    std::vector<Client::Item> items;
    for (const auto& [id, sequence] : client.sequences()) {
      items.push_back({id, core::StepOp::free, {}, 0, false});
    }
    client.send_step(std::move(items));
    world_.run_all();
    client.poll();
  }
  if (!client.expired() && !client.sequences().empty()) {
    world_.problem("15: sequences could not be freed");
  }
  if (client.outstanding() != 0 && !client.expired()) {
    world_.problem("15: client " + std::to_string(client.id().value) + " waits for a reply");
  }
}

}  // namespace kv::model
