#include "tests/model/random_run.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace kv::model {
namespace {

constexpr std::size_t kClientsMax = 4;

// Of one block, all its layer groups.
std::uint64_t slot_bytes(const KvLayout& layout) {
  std::uint64_t bytes = 0;
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) bytes += block_bytes(layout, GroupId{g});
  return bytes;
}

}  // namespace

world::VirtualWorld::Options RandomRun::options_of(std::uint64_t seed) {
  Prng prng(seed * 2 + 1);
  world::VirtualWorld::Options options;
  options.seed = seed;
  options.layout.block_tokens = 1U << prng.below(3);
  LayerGroup group;
  group.layer_count = group.kv_head_count = group.head_dim_k = group.head_dim_v = 1;
  options.layout.groups.push_back(group);
  group.head_dim_k = 3;
  if (prng.chance(1, 2)) options.layout.groups.push_back(group);
  const std::uint64_t groups = options.layout.groups.size();
  const std::uint64_t bytes = slot_bytes(options.layout);
  auto& engine = options.engine;
  const std::uint64_t host_slots = prng.chance(1, 8) ? 0 : 2 + prng.below(19);
  const std::uint64_t disk_slots = prng.chance(1, 8) ? 0 : 2 + prng.below(19);
  engine.tier_bytes = {(4 + prng.below(17)) * bytes, host_slots * bytes, disk_slots * 4096 * groups,
                       0};
  engine.client_capacity = 64;
  engine.sequence_capacity = static_cast<std::uint32_t>(4 + prng.below(20));
  engine.credits_per_client = static_cast<std::uint32_t>(2 + prng.below(6));
  engine.notices_per_client = 16;
  engine.device_host_transfers = static_cast<std::uint32_t>(1 + prng.below(4));
  engine.host_disk_transfers = static_cast<std::uint32_t>(1 + prng.below(4));
  engine.sequence_tokens_max = 64;
  engine.lease = std::chrono::seconds(1);
  engine.hash_seed = seed;
  engine.history_capacity = 24;
  engine.write_through = prng.chance(2, 3);
  engine.root_capacity = prng.chance(1, 2) ? 16 : 2;  // there are four namespaces
  if (prng.chance(3, 4)) options.faults = {100, 30, 50, 60, 100, 50};
  return options;
}

RandomRun::RandomRun(std::uint64_t seed)
    : prng_(seed), world_(options_of(seed)), sequences_max_(1 + prng_.below(6)) {}

std::size_t RandomRun::sequence_count() const {
  std::size_t count = 0;
  for (const auto& client : clients_) count += std::as_const(*client).sequences().size();
  return count;
}

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
  const std::optional<Loading> load = find_loading();
  if (clients_.size() < 2 || (choice == 0 && clients_.size() < kClientsMax)) {
    add_client();
  } else if (choice < 8 && load) {
    disturb_load(*load);
  } else if (choice < 24 && quiet_ > 0) {
    --quiet_;
    operate_client(*clients_[prng_.below(clients_.size())]);
  } else if (choice < 20) {
    note("run_next");
    for (std::uint64_t n = 1 + prng_.below(3); n > 0; --n) world_.run_next();
    if (prng_.chance(1, 20)) world_.report_unknown_transfer();
  } else if (choice < 24) {
    operate_time();
  } else if (choice == 24 && prng_.chance(1, 4)) {
    restart();
    if (prng_.chance(1, 4)) turn_disk_off();
  } else if (choice == 25 && prng_.chance(1, 8)) {
    turn_disk_off();
  } else {
    const std::size_t index = prng_.below(clients_.size());
    if ((choice == 26 && prng_.chance(1, 3)) ||
        (clients_[index]->expired() && prng_.chance(1, 2))) {
      drop_client(index, prng_.chance(1, 2));
    } else if (choice == 27 || choice == 28) {
      recall(*clients_[index]);
    } else {
      operate_client(*clients_[index]);
    }
  }
  poll();
}

void RandomRun::operate_time() {
  if (prng_.chance(1, 10)) {
    note("the service stands still");
    ++events_.unheard;
    const Duration pause = std::chrono::milliseconds(prng_.below(4'000));
    world_.pass_time(pause + std::chrono::milliseconds(prng_.below(100)), pause);
    return;
  }
  if (prng_.chance(19, 20)) {
    note("time passes");
    world_.pass_time(std::chrono::microseconds(prng_.below(50'000)));
    return;
  }
  silence(prng_.below(clients_.size()));
}

void RandomRun::add_client() {
  note("a client attaches");
  auto role = prng_.chance(1, 10) ? core::ClientRole::observer : core::ClientRole::runner;
  if (prng_.chance(1, 4)) role = core::ClientRole::admin;
  const bool anybody_works = std::ranges::any_of(
      clients_, [](const auto& client) { return client->role() != core::ClientRole::observer; });
  if (!anybody_works && role == core::ClientRole::observer) role = core::ClientRole::runner;
  const std::string tenant = prng_.chance(9, 10) ? "t0" : "t1";
  clients_.push_back(std::make_unique<Client>(world_, tenant, role));
  if (role != core::ClientRole::observer) clients_.back()->attach_pool();
}

// Mostly two or three sequences fit the device.
std::uint64_t RandomRun::prompt_tokens_max() const {
  const auto& options = world_.options();
  const std::uint64_t slots =
      options.engine.tier_bytes[tier_index(Tier::device)] / slot_bytes(options.layout);
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
  // What runs goes on, or the device would be full of it.
  const bool runs =
      std::ranges::any_of(client.sequences(), [](const auto& one) { return one.second.ready; });
  if (client.role() == core::ClientRole::observer) {
    ask_as_observer(client);
  } else if (runs && prng_.chance(1, 2)) {
    step(client);
    if (prng_.chance(1, 2)) client.complete_steps(1 + prng_.below(2));
  } else if (choice < 33) {
    open(client);
  } else if (choice < 48) {
    if (!admit(client)) open(client);
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
  // One that expired with as many requests as it has credits is never answered: it dies.
  while (!clients_.empty() && problems().empty()) {
    drop_client(clients_.size() - 1, has_credit(*clients_.back()));
  }
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
