// RandomRun: one run of the model test: a seed decides the sizes, the clients, every operation and
// every fault. All checkers run after each step of the Engine.
// Owner: the test. Threads: none.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocator/base/prng.h"
#include "cachesvc/core/actions.h"
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
  void drop_client(std::size_t index, bool orderly);
  void restart();
  void poll();
  void drain();
  void wind_down(Client& client);

  // random_steps.cc
  void open(Client& client);
  void admit(Client& client);
  void step(Client& client);
  void plan_sequence(Client& client, Client::Sequence& sequence, std::vector<Client::Item>& items);
  void plan_bad_item(Client& client, std::vector<Client::Item>& items);
  void lookup(Client& client);
  void ask_admin(Client& client);
  void ask_to_clear(Client& client);
  void ask_nonsense(Client& client);
  void ask_as_observer(Client& client);

  [[nodiscard]] std::vector<Token> random_tokens(std::uint64_t count_max);
  [[nodiscard]] std::string random_weights() { return prng_.chance(9, 10) ? "w0" : "w1"; }
  [[nodiscard]] std::uint64_t prompt_tokens_max() const;
  [[nodiscard]] bool has_credit(const Client& client) const;
  void note(const std::string& text);

  Prng prng_;
  world::VirtualWorld world_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<ClientId> said_bye_;  // their processes still live
  std::uint64_t next_sequence_ = 1;
  std::vector<core::Counters> earlier_lives_;
  bool log_kept_ = false;
  std::vector<std::string> log_;
};

}  // namespace kv::model
