// RandomRun: one run of the model test: a seed decides the sizes, the clients, every operation and
// every fault. All checkers run after each step of the Engine.
// Owner: the test. Threads: none.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/prng.h"
#include "cachesvc/core/actions.h"
#include "tools/world/fingerprint.h"
#include "tools/world/virtual_client.h"
#include "tools/world/virtual_world.h"

namespace kv::model {

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed);

  // Operations at random, then a drain without faults. Stops at the first problem.
  void run(std::uint32_t operations);
  [[nodiscard]] const std::vector<std::string>& problems() const { return world_.problems(); }
  [[nodiscard]] const world::VirtualWorld& world() const { return world_; }
  // Of all lives of the service in this run.
  [[nodiscard]] core::Counters counters() const;
  // Of all actions of all lives.
  [[nodiscard]] std::uint64_t digest() const {
    return world::mix(earlier_digest_, world_.digest());
  }
  // What this run did that no counter of the service tells.
  struct Events {
    std::uint64_t freed_waiting = 0, freed_loading = 0;  // sequences
    std::uint64_t disk_off = 0, disk_off_refused = 0, disk_off_recovering = 0;
    std::uint64_t unheard = 0;  // Ticks after a pause
  };
  [[nodiscard]] const Events& events() const { return events_; }
  // Each operation and its step, for people; kept only when asked for.
  void keep_log() { log_kept_ = true; }
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }

 private:
  using Client = world::VirtualClient;

  static world::VirtualWorld::Options options_of(std::uint64_t seed);
  void operate();
  void operate_client(Client& client);
  void operate_time();
  void add_client();
  void poll();
  void drain();
  void wind_down(Client& client);

  // random_disturbances.cc
  struct Loading {
    std::size_t client;  // index
    const Client::Sequence* sequence;
  };
  void drop_client(std::size_t index, bool orderly);
  void restart();
  void turn_disk_off();
  void silence(std::size_t index);
  [[nodiscard]] std::optional<Loading> find_loading() const;
  void disturb_load(const Loading& load);
  void want_the_same(const Client::Sequence& loading);
  [[nodiscard]] Client* find_admin() const;

  // random_steps.cc
  void open(Client& client);
  bool admit(Client& client);  // false: none of its sequences waits for that
  void step(Client& client);
  void plan_sequence(Client& client, Client::Sequence& sequence, std::vector<Client::Item>& items);
  void plan_branch(const Client::Sequence& sequence, std::vector<Client::Item>& items);
  void plan_bad_item(Client& client, std::vector<Client::Item>& items);
  void lookup(Client& client);
  void recall(Client& client);
  void open_and_admit(Client& client, const std::string& weights, std::span<const Token> tokens);
  void ask_admin(Client& client);
  void ask_to_clear(Client& client);
  void ask_nonsense(Client& client);
  void ask_as_observer(Client& client);

  [[nodiscard]] std::vector<Token> random_tokens(std::uint64_t count_max);
  [[nodiscard]] std::string random_weights() { return prng_.chance(9, 10) ? "w0" : "w1"; }
  [[nodiscard]] std::uint64_t prompt_tokens_max() const;
  [[nodiscard]] std::size_t sequence_count() const;
  [[nodiscard]] bool has_credit(const Client& client) const;
  void note(const std::string& text);

  Prng prng_;
  world::VirtualWorld world_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<ClientId> said_bye_;  // their processes still live
  std::uint64_t next_sequence_ = 1;
  std::uint64_t sequences_max_;  // open at one time: crowded runs, and others
  std::vector<core::Counters> earlier_lives_;
  std::uint64_t earlier_digest_ = 0;
  Events events_;
  std::uint32_t quiet_ = 0;  // operations to come in which nothing happens by itself
  bool log_kept_ = false;
  std::vector<std::string> log_;
};

}  // namespace kv::model
