// The scheduler of cuda_fiber.h. This file is never instrumented by the thread sanitizer and calls
// nothing that it intercepts while a lane runs: what it copies between lanes is not a race.
#include "tests/support/cuda_fiber.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#include "allocator/base/prng.h"
#include "tests/support/cuda_fiber_exchange.h"
#include "tests/support/cuda_fiber_switch.h"

namespace kv::fiber {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t kStackBytes = std::size_t{256} << 10U;
constexpr std::size_t kSharedBytes = std::size_t{48} << 10U;  // what a block may declare
constexpr int kLaunchFailure = 719;

enum class State : std::uint8_t { ready, at_barrier, at_collective, done };

struct Lane {
  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  Lane(Lane&&) = delete;
  Lane& operator=(Lane&&) = delete;
  ~Lane() { end_identity(identity); }
  Mapping stack{kStackBytes};
  context::fcontext_t context = nullptr;
  State state = State::done;
  std::source_location at;
  std::uint32_t mask = 0;
  std::uint64_t token = 0;  // what orders this rendezvous; 0: nothing
  Operand* operand = nullptr;
  Dim3 thread;
  std::uint32_t index = 0;
  void* identity = new_identity();
  void* kept_stack = nullptr;
};

struct SharedArray {
  const void* site;
  std::size_t offset;
};

bool same_site(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

std::string text_of(const std::source_location& at) {
  const std::string_view path = at.file_name();
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1)) + ":" +
         std::to_string(at.line());
}

// One for each thread of the process: the lanes of the block that runs.
class Machine {
 public:
  int run(Dim3 grid, Dim3 block, void (*body)(const void*), const void* argument);
  void barrier(const std::source_location& at);
  void collective(std::uint32_t mask, bool orders, Operand& operand,
                  const std::source_location& at);
  void* shared(const void* site, std::size_t bytes, std::size_t alignment, std::string_view name);
  [[noreturn]] void lane_body(context::fcontext_t caller);

  Session* session = nullptr;
  Lane* current = nullptr;
  Dim3 block_index, block_size, grid_size;

 private:
  void run_block();
  void resume(Lane& lane);
  void suspend(Lane& lane);
  bool resolve_warp(std::uint32_t first);
  bool resolve_mask(std::uint32_t first, Lane& lane);
  bool resolve_barrier();
  [[nodiscard]] std::string deadlock() const;
  void prepare_lanes(std::uint32_t count);
  void fail(const std::string& text);
  std::uint64_t new_token() { return ++tokens_used_; }
  [[nodiscard]] std::vector<std::uint32_t> order(std::uint32_t count);
  [[nodiscard]] std::uint64_t token_for(const Lane& self, std::uint32_t begin, std::uint32_t end);

  std::vector<std::unique_ptr<Lane>> lanes_;  // kept from launch to launch
  std::uint32_t lane_count_ = 0;
  std::vector<SharedArray> shared_arrays_;
  std::unique_ptr<Mapping> shared_memory_;
  std::size_t shared_used_ = 0;
  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
  context::fcontext_t main_context_ = nullptr;
  const void* main_stack_ = nullptr;
  std::size_t main_stack_bytes_ = 0;
  void* main_kept_stack_ = nullptr;
  void* main_identity_ = nullptr;
  std::uint64_t tokens_used_ = 0;
  std::uint64_t begin_token_ = 0, end_token_ = 0;
  bool failed_ = false;
  Prng prng_{1};
};

Machine& machine() {
  thread_local Machine instance;
  return instance;
}

void lane_entry(context::transfer_t transfer) {
  auto* self = static_cast<Machine*>(transfer.data);
  self->lane_body(transfer.fctx);
}

[[noreturn]] void Machine::lane_body(context::fcontext_t caller) {
  Lane& lane = *current;
  main_context_ = caller;
  after_switch(lane.kept_stack, &main_stack_, &main_stack_bytes_);
  acquire(begin_token_);
  body_(argument_);
  release(end_token_);
  lane.state = State::done;
  before_switch(nullptr, main_stack_, main_stack_bytes_);
  take_identity(main_identity_);
  context::jump_fcontext(main_context_, nullptr);
  std::abort();  // a finished lane is never resumed
}

void Machine::resume(Lane& lane) {
  current = &lane;
  before_switch(&main_kept_stack_, lane.stack.data(), lane.stack.bytes());
  take_identity(lane.identity);
  lane.context = context::jump_fcontext(lane.context, this).fctx;
  after_switch(main_kept_stack_, nullptr, nullptr);
  current = nullptr;
}

void Machine::suspend([[maybe_unused]] Lane& lane) {
  before_switch(&lane.kept_stack, main_stack_, main_stack_bytes_);
  take_identity(main_identity_);
  main_context_ = context::jump_fcontext(main_context_, nullptr).fctx;
  after_switch(lane.kept_stack, &main_stack_, &main_stack_bytes_);
}

void Machine::fail(const std::string& text) {
  failed_ = true;
  const std::string where = "block " + std::to_string(block_index.x) + "," +
                            std::to_string(block_index.y) + "," + std::to_string(block_index.z);
  if (session == nullptr) {
    static_cast<void>(std::fprintf(stderr, "fiber: %s: %s\n", where.c_str(), text.c_str()));
    std::abort();
  }
  session->set_fault(where + ": " + text);
}

std::vector<std::uint32_t> Machine::order(std::uint32_t count) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  const LaneOrder wanted = session == nullptr ? LaneOrder::ascending : session->options().order;
  if (wanted == LaneOrder::descending) std::ranges::reverse(indices);
  if (wanted == LaneOrder::random) {
    for (std::uint32_t i = count; i > 1; --i) std::swap(indices[i - 1], indices[prng_.below(i)]);
  }
  return indices;
}

// The token of the rendezvous that `self` arrives at: that of the first to arrive, or a new one.
std::uint64_t Machine::token_for(const Lane& self, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = begin; i < end; ++i) {
    const Lane& other = *lanes_[i];
    if (&other != &self && other.state == self.state && other.token != 0 &&
        other.mask == self.mask && same_site(other.at, self.at)) {
      return other.token;
    }
  }
  return new_token();
}

void Machine::barrier(const std::source_location& at) {
  Lane& lane = *current;
  lane.at = at;
  lane.mask = 0;
  lane.state = State::at_barrier;
  lane.token = token_for(lane, 0, lane_count_);
  const std::uint64_t token = lane.token;
  release(token);
  suspend(lane);
  acquire(token);
}

void Machine::collective(std::uint32_t mask, bool orders, Operand& operand,
                         const std::source_location& at) {
  Lane& lane = *current;
  lane.at = at;
  lane.mask = mask;
  lane.operand = &operand;
  lane.token = 0;
  lane.state = State::at_collective;
  const std::uint32_t first = lane.index / kWarp * kWarp;
  if ((mask >> (lane.index - first) & 1U) == 0) {
    fail("lane " + std::to_string(lane.index) + " is not in its own mask at " + text_of(at));
  }
  if (orders) lane.token = token_for(lane, first, std::min(first + kWarp, lane_count_));
  const std::uint64_t token = lane.token;
  if (token != 0) release(token);
  suspend(lane);
  if (token != 0) acquire(token);
}

// Completes the collective that `lane` waits at, when everyone named in its mask has arrived.
bool Machine::resolve_mask(std::uint32_t first, Lane& lane) {
  std::array<Operand*, kWarp> operands{};
  for (std::uint32_t i = 0; i < kWarp; ++i) {
    if ((lane.mask >> i & 1U) == 0) continue;
    const std::uint32_t index = first + i;
    if (index >= lane_count_ || lanes_[index]->state == State::done) {
      fail("lane " + std::to_string(index) +
           (index >= lane_count_ ? " does not exist" : " exited") +
           " and is named in the mask of lane " + std::to_string(lane.index) + " at " +
           text_of(lane.at));
      return false;
    }
    const Lane& other = *lanes_[index];
    if (other.state != State::at_collective || other.mask != lane.mask ||
        !same_site(other.at, lane.at)) {
      return false;
    }
    operands[i] = other.operand;
  }
  exchange(operands);
  for (std::uint32_t i = 0; i < kWarp; ++i) {
    if (operands[i] != nullptr) lanes_[first + i]->state = State::ready;
  }
  return true;
}

bool Machine::resolve_warp(std::uint32_t first) {
  bool progress = false;
  for (std::uint32_t i = first; i < std::min(first + kWarp, lane_count_) && !failed_; ++i) {
    if (lanes_[i]->state == State::at_collective) progress |= resolve_mask(first, *lanes_[i]);
  }
  return progress;
}

// A barrier completes when every lane that has not exited waits at it.
bool Machine::resolve_barrier() {
  const Lane* waiting = nullptr;
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    const Lane& lane = *lanes_[i];
    if (lane.state == State::done) continue;
    if (lane.state != State::at_barrier) return false;
    if (waiting != nullptr && !same_site(waiting->at, lane.at)) return false;
    waiting = &lane;
  }
  if (waiting == nullptr) return false;
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    if (lanes_[i]->state == State::at_barrier) lanes_[i]->state = State::ready;
  }
  return true;
}

std::string Machine::deadlock() const {
  const Lane* first = nullptr;
  std::string text = "threads wait for each other";
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    const Lane& lane = *lanes_[i];
    const bool same = first != nullptr && lane.state == first->state && lane.mask == first->mask &&
                      same_site(lane.at, first->at);
    if (lane.state == State::done || same) continue;
    text += (first == nullptr ? ": lane " : ", lane ") + std::to_string(i) +
            (lane.state == State::at_barrier ? " at the barrier " : " at the collective ") +
            text_of(lane.at);
    if (first != nullptr) break;
    first = &lane;
  }
  return text;
}

void Machine::run_block() {
  shared_arrays_.clear();
  shared_used_ = 0;
  // New memory has no history of races: the lanes of other blocks are strangers.
  if (kRaces) shared_memory_.reset();
  if (shared_memory_ == nullptr) shared_memory_ = std::make_unique<Mapping>(kSharedBytes);
  forbid(shared_memory_->data(), kSharedBytes);
  begin_token_ = new_token();
  release(begin_token_);
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    Lane& lane = *lanes_[i];
    lane.context = context::make_fcontext(lane.stack.data() + lane.stack.bytes(),
                                          lane.stack.bytes(), lane_entry);
    lane.state = State::ready;
    lane.kept_stack = nullptr;
  }
  for (bool alive = true; alive && !failed_;) {
    bool progress = false;
    for (const std::uint32_t i : order(lane_count_)) {
      if (lanes_[i]->state != State::ready) continue;
      progress = true;
      resume(*lanes_[i]);
      if (failed_) return;
    }
    for (std::uint32_t first = 0; first < lane_count_; first += kWarp) {
      progress |= resolve_warp(first);
    }
    progress |= resolve_barrier();
    alive = std::any_of(lanes_.begin(), lanes_.begin() + lane_count_,
                        [](const auto& lane) { return lane->state != State::done; });
    if (alive && !progress && !failed_) fail(deadlock());
  }
}

void Machine::prepare_lanes(std::uint32_t count) {
  lane_count_ = count;
  while (lanes_.size() < count) {
    lanes_.push_back(std::make_unique<Lane>());
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Lane& lane = *lanes_[i];
    lane.index = i;
    lane.thread = {i % block_size.x, i / block_size.x % block_size.y,
                   i / block_size.x / block_size.y};
  }
}

int Machine::run(Dim3 grid, Dim3 block, void (*body)(const void*), const void* argument) {
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (blocks == 0 || threads == 0 || threads > 1024 || grid.y > 65535 || grid.z > 65535) {
    return 9;  // as CUDA's invalid configuration
  }
  grid_size = grid;
  block_size = block;
  body_ = body;
  argument_ = argument;
  failed_ = false;
  prng_ = Prng(session == nullptr ? 1 : session->options().seed);
  prepare_lanes(static_cast<std::uint32_t>(threads));
  main_identity_ = own_identity();
  end_token_ = new_token();
  for (const std::uint32_t b : order(static_cast<std::uint32_t>(blocks))) {
    block_index = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    run_block();
    if (failed_) break;
  }
  if (failed_) {  // lanes that never reached their end are over, too
    for (std::uint32_t i = 0; i < lane_count_; ++i) {
      take_identity(lanes_[i]->identity);
      release(end_token_);
      take_identity(main_identity_);
    }
  }
  acquire(end_token_);
  if (!failed_) return 0;
  lanes_.clear();  // what was left on their stacks is not run again
  return kLaunchFailure;
}

void* Machine::shared(const void* site, std::size_t bytes, std::size_t alignment,
                      std::string_view name) {
  for (const SharedArray& array : shared_arrays_) {
    if (array.site == site) return shared_memory_->data() + array.offset;
  }
  const std::size_t offset = (shared_used_ + alignment - 1) / alignment * alignment;
  if (offset + bytes > kSharedBytes) {
    fail("shared array " + std::string(name) + " does not fit");
    suspend(*current);
  }
  std::byte* data = shared_memory_->data() + offset;
  allow(data, bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<std::byte>(kPoison >> (8 * (i % 4)));
    *static_cast<volatile std::byte*>(data + i) = byte;  // volatile: never a call to memset
  }
  shared_arrays_.push_back({site, offset});
  shared_used_ = offset + bytes + kSharedGap;
  return data;
}

}  // namespace

Session::Session(const Options& options) : options_(options) { machine().session = this; }
Session::~Session() { machine().session = nullptr; }

int run_grid(Dim3 grid, Dim3 block, void (*body)(const void*), const void* argument) {
  return machine().run(grid, block, body, argument);
}

Dim3 thread_index() { return machine().current->thread; }
Dim3 block_index() { return machine().block_index; }
Dim3 block_size() { return machine().block_size; }
Dim3 grid_size() { return machine().grid_size; }
std::uint32_t lane_of_warp() { return machine().current->index % kWarp; }

void* shared_memory(const void* site, std::size_t bytes, std::size_t alignment,
                    std::string_view name) {
  return machine().shared(site, bytes, alignment, name);
}

void block_barrier(const std::source_location& at) { machine().barrier(at); }

void warp_collective(std::uint32_t mask, bool orders, Operand& operand,
                     const std::source_location& at) {
  machine().collective(mask, orders, operand, at);
}

}  // namespace kv::fiber
