// Sequences: their table, their ids, and how they end.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

// Finalizer of MurmurHash3 (Appleby, public domain) over both ids.
std::uint64_t hash_of(ClientId client, SequenceId id) {
  std::uint64_t h = client.value * 0x9E3779B97F4A7C15U ^ id.value;
  h = (h ^ (h >> 33U)) * 0xFF51AFD7ED558CCDU;
  h = (h ^ (h >> 33U)) * 0xC4CEB9FE1A85EC53U;
  return h ^ (h >> 33U);
}

template <class T>
void clear_and_shrink(std::vector<T>& vector) {
  if (vector.capacity() * sizeof(T) > kKeptVectorBytesMax) {
    std::vector<T>().swap(vector);
  } else {
    vector.clear();
  }
}

std::vector<HeldRoot>::iterator find_held(ClientState& client, RootId root) {
  return std::find_if(client.roots.begin(), client.roots.end(),
                      [root](const HeldRoot& held) { return held.root == root; });
}

void leave(std::vector<std::uint32_t>& list, std::uint32_t index) {
  list.erase(std::remove(list.begin(), list.end(), index), list.end());
}

}  // namespace

std::uint32_t Engine::State::find_sequence(ClientId client, SequenceId id) const {
  return sequence_index_.find(hash_of(client, id), [&](std::uint32_t index) {
    return sequences_[index].client == client && sequences_[index].id == id;
  });
}

std::uint32_t Engine::State::make_sequence(ClientState& client, SequenceId id, RootId root) {
  const std::uint32_t index = free_sequences_.back();
  free_sequences_.pop_back();
  ++sequences_used_;
  SequenceState& sequence = sequences_[index];
  sequence.serial = ++sequence_serial_;
  sequence.phase = SequencePhase::opened;
  sequence.client = client.id;
  sequence.id = id;
  sequence.root = root;
  sequence.outdated = false;
  sequence.uncacheable_blocks = 0;
  sequence.cacheable_tokens = kNoIndex;
  sequence.is_resumed = false;
  sequence.held_until = 0;
  sequence_index_.insert(hash_of(client.id, id), index);
  use_root(root);
  const auto held = find_held(client, root);
  if (held == client.roots.end()) {
    client.roots.push_back({root, 1});
  } else {
    ++held->sequences;
  }
  return index;
}

void Engine::State::detach_sequence(std::uint32_t index) {
  const SequenceState& sequence = sequences_[index];
  if (find_sequence(sequence.client, sequence.id) == index) {
    sequence_index_.erase(hash_of(sequence.client, sequence.id), index);
  }
}

void Engine::State::grow_table(SequenceState& sequence, std::uint32_t block_count) {
  const std::uint32_t old_count = sequence.block_count;
  if (block_count <= old_count) return;
  sequence.table.resize(std::size_t{group_count_} * block_count);
  for (std::uint32_t g = group_count_; g > 0; --g) {
    SlotId* const from = sequence.table.data() + std::size_t{g - 1} * old_count;
    SlotId* const to = sequence.table.data() + std::size_t{g - 1} * block_count;
    std::move_backward(from, from + old_count, to + old_count);
    std::fill(to + old_count, to + block_count, SlotId::none());
  }
  sequence.owned.resize(block_count, 0);
  sequence.block_count = block_count;
}

void Engine::State::shrink_table(SequenceState& sequence, std::uint32_t block_count) {
  const std::uint32_t old_count = sequence.block_count;
  if (block_count >= old_count) return;
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    std::copy_n(sequence.table.begin() + std::ptrdiff_t{g} * old_count, block_count,
                sequence.table.begin() + std::ptrdiff_t{g} * block_count);
  }
  sequence.table.resize(std::size_t{group_count_} * block_count);
  sequence.owned.resize(block_count);
  sequence.block_count = block_count;
}

// The slots of loads that did not become copies are the sequence's own from here on, so that one
// loop gives everything back; what is still in flight follows when its move ends.
void Engine::State::begin_ending(std::uint32_t index, SequencePhase phase) {
  SequenceState& sequence = sequences_[index];
  leave(waiting_, index);
  leave(retrying_, index);
  if (sequence.phase == SequencePhase::admitting) waiting_changed_ = true;
  leave(admitting_, index);
  leave(loading_, index);
  if (phase != SequencePhase::unwinding) detach_sequence(index);
  const bool was_fenced = sequence.phase == SequencePhase::fenced;
  if (phase == SequencePhase::ending && !was_fenced) use_root(sequence.root);
  for (std::uint32_t i = 0; i < sequence.loads.size(); ++i) {
    const LoadPhase at = sequence.loads[i].phase;
    if (at != LoadPhase::from_disk && at != LoadPhase::to_device) abandon_load(sequence, i);
  }
  if (!sequence.deepest.is_none()) {
    unpin(sequence.deepest);
    sequence.deepest = BlockId::none();
  }
  for (const ReplacedSlot& replaced : sequence.replaced) {
    if (phase == SequencePhase::fencing) {
      find_client(sequence.client)
          ->fence.push_back(
              {0, FenceEntry::Kind::release, replaced.group, replaced.slot, kNoIndex, 0, 0});
    } else {
      freeing_.push_back({replaced.group, replaced.slot});
    }
  }
  sequence.replaced.clear();
  sequence.phase = phase;
  sequence.cursor = sequence.block_count;
  leave(endings_, index);
  endings_.push_back(index);
}

void Engine::State::run_endings() {
  for (std::size_t i = 0; i < endings_.size() && budget_left();) {
    if (run_ending(endings_[i])) {
      const std::uint32_t index = endings_[i];
      endings_.erase(endings_.begin() + static_cast<std::ptrdiff_t>(i));
      finish_ending(index);
    } else {
      ++i;
    }
  }
}

bool Engine::State::run_ending(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  if (sequence.loads_in_flight > 0) return false;
  for (; sequence.cursor > 0; --sequence.cursor) {
    if (!budget_left()) return false;
    const std::uint32_t block = sequence.cursor - 1;
    if (sequence.owned[block] == 0) continue;
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      const SlotId slot = entry(sequence, GroupId(g), block);
      BlockPool& pool = cache().pool(Tier::device, GroupId(g));
      if (sequence.phase == SequencePhase::fencing) {
        pool.fence(slot);
      } else if (pool.state(slot) == SlotState::fenced) {
        pool.unfence(slot);
      } else {
        cache().release_slot(Tier::device, GroupId(g), slot);
      }
      ++work_;
    }
    if (sequence.phase != SequencePhase::fencing) sequence.owned[block] = 0;
  }
  return true;
}

void Engine::State::finish_ending(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  if (sequence.phase == SequencePhase::fencing) {
    waiting_changed_ = true;  // who waited for its loads
    if (std::find(sequence.owned.begin(), sequence.owned.end(), 1) != sequence.owned.end()) {
      sequence.phase = SequencePhase::fenced;
      return;
    }
    ClientState& client = *find_client(sequence.client);
    --client.fenced_sequences;
    end_if_nothing_is_fenced(client);
  }
  const bool reopen = sequence.phase == SequencePhase::unwinding;
  const bool failed = sequence.load_failed;
  clear_and_shrink(sequence.table);
  clear_and_shrink(sequence.owned);
  clear_and_shrink(sequence.loads);
  clear_and_shrink(sequence.landing);
  clear_and_shrink(sequence.path);
  sequence.block_count = 0;
  sequence.published_blocks = 0;
  sequence.publish_requested = 0;
  sequence.publish_stopped = false;
  sequence.table_version = 0;
  sequence.hit_blocks = 0;
  sequence.loads_added = 0;
  sequence.load_failed = false;
  sequence.admission = {};
  if (!reopen || !sequence.is_resumed) sequence.account = {};
  waiting_changed_ = true;
  if (reopen) {
    sequence.phase = SequencePhase::opened;
    if (failed) {
      notify(sequence.client, NoticeKind::sequence_ready, sequence.id, ErrorCode::busy, {});
    }
    return;
  }
  sequence.phase = SequencePhase::unused;
  clear_and_shrink(sequence.tokens);
  prompt_tokens_ -= sequence.prompt_tokens;
  if (ClientState* const client = find_client(sequence.client); client != nullptr) {
    client->prompt_tokens -= sequence.prompt_tokens;
    const auto held = find_held(*client, sequence.root);
    if (held != client->roots.end() && --held->sequences == 0) client->roots.erase(held);
  }
  sequence.prompt_tokens = 0;
  free_sequences_.push_back(index);
  --sequences_used_;
}

}  // namespace kv::core
