#include "tiering/stores/disk_store.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "allocator/base/check.h"
#include "tiering/stores/aligned_buffer.h"
#include "tiering/stores/disk_directory.h"
#include "tiering/stores/disk_format.h"
#include "tiering/stores/disk_index.h"
#include "tiering/stores/disk_record.h"
#include "tiering/stores/disk_store_seams.h"
#include "tiering/stores/io_choice.h"
#include "tiering/stores/open_attempt.h"
#include "tiering/stores/slot_io.h"
#include "tiering/stores/slot_table.h"

namespace kv {
namespace {

constexpr std::uint32_t kScanChunk = 1'024;
constexpr std::uint32_t kQueueDepthMax = 1'024;
constexpr Error kNoFormat = {
    ErrorCode::corrupt, "disk store: blocks, but no format file; remove the directory", "format"};

// The smallest key after this one.
std::string next_key(std::string key) {
  key.push_back('\0');
  return key;
}

struct AtomicCounters {
  std::atomic<std::uint64_t> written_blocks = 0, read_blocks = 0, erased_blocks = 0;
  std::atomic<std::uint64_t> corrupt_blocks = 0, failed_writes = 0, failed_reads = 0;
  std::atomic<std::uint64_t> damaged_entries = 0, out_of_budget_entries = 0, damaged_indexes = 0;
};

// The format of an existing directory, checked against `layout`, or that of a new one, written.
Result<DiskFormat> settle_format(const DiskStore::Options& options, const KvLayout& layout,
                                 const DiskDirectory& directory) {
  KV_TRY(std::optional<DiskFormat> format, read_disk_format(options.directory));
  if (format) {
    const std::string_view field = first_difference(format->layout, layout);
    if (field.empty()) return *std::move(format);
    return Error{ErrorCode::mismatch, "disk store: the directory holds another layout", field};
  }
  if (directory.holds_blocks()) {
    return kNoFormat;
  }
  DiskFormat made = {.slab_bytes = options.slab_bytes_max, .layout = layout};
  KV_TRY_VOID(write_disk_format(options.directory, made));
  return made;
}

}  // namespace

struct DiskStore::State {
  State(DiskDirectory held, KvLayout held_layout, Io used, std::string_view reason, SlotIo io)
      : directory(std::move(held)),
        layout(std::move(held_layout)),
        io_used(used),
        plain_reason(reason),
        slots(std::move(io)),
        tables(layout.groups.size()) {}

  DiskDirectory directory;
  KvLayout layout;
  Io io_used;
  std::string_view plain_reason;
  SlotIo slots;
  std::unique_ptr<DiskIndex> index;
  std::vector<SlotTable> tables;  // by group
  // Entries that must leave the index before anything is written; their slots count as free.
  std::vector<BlobErase> pending_erases;
  std::string scan_from;
  bool scan_ended = false;
  AtomicCounters counters;

  [[nodiscard]] bool slot_exists(GroupId group, SlotId slot) const {
    return group.value < tables.size() && slot.value < slots.slot_count(group);
  }
  [[nodiscard]] bool holds(const BlobIdentity& identity) const {
    return slot_exists(identity.group, identity.slot) &&
           tables[identity.group.value]
               .at(identity.slot)
               .is(identity.key, identity.depth, identity.generation);
  }

  Result<void> open_index(const std::string& path, rocksdb::Env* environment);
  Result<void> start_anew();
  Result<void> load_index();
  bool admit_entry(const BlobIdentity& identity, std::vector<std::string>& erased);
  void free_slot(GroupId group, SlotId slot);
  [[nodiscard]] Result<bool> entry_names_another_slot(const std::string& key,
                                                      const BlobErase& erase) const;
  Result<void> apply_erases();
  void fail_if_erases_wait(std::span<ErrorCode> outcomes);
  void record_written(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes);
};

std::uint64_t DiskStore::slot_bytes(const KvLayout& layout, GroupId group) {
  const std::uint64_t bytes = block_bytes(layout, group);
  return (bytes + kDiskUnitBytes - 1) / kDiskUnitBytes * kDiskUnitBytes;
}

Result<std::optional<KvLayout>> DiskStore::peek(const std::string& directory) {
  KV_TRY(std::optional<DiskFormat> format, read_disk_format(directory));
  if (!format) {
    if (DiskDirectory::has_blocks(directory)) return kNoFormat;
    return std::optional<KvLayout>();
  }
  return std::optional<KvLayout>(std::move(format->layout));
}

Result<std::unique_ptr<DiskStore>> DiskStore::open(const Options& options, const KvLayout& layout) {
  return open(options, layout, DiskStoreSeams{});
}

Result<std::unique_ptr<DiskStore>> DiskStore::open(const Options& options, const KvLayout& layout,
                                                   const DiskStoreSeams& seams) {
  KV_TRY_VOID(validate(layout));
  if (options.bytes == 0) return Error{ErrorCode::invalid, "disk store: no budget", "bytes"};
  KV_TRY(DiskDirectory directory, DiskDirectory::open(options.directory));
  const OpenAttempt attempt(options.directory);
  KV_TRY(const DiskFormat format, settle_format(options, layout, directory));
  const std::uint32_t queue_depth = std::clamp(options.queue_depth, 1U, kQueueDepthMax);
  KV_TRY(ChosenIo chosen, choose_io(options.io, queue_depth, options.directory + "/format"));
  if (seams.wrap_io) chosen.io = seams.wrap_io(std::move(chosen.io));
  SlotIo slots({.directory = options.directory,
                .layout = layout,
                .budget_bytes = options.bytes,
                .slab_bytes = format.slab_bytes,
                .queue_depth = queue_depth,
                .direct = chosen.direct},
               std::move(chosen.io));
  auto state = std::make_unique<State>(std::move(directory), layout,
                                       chosen.direct ? Io::io_uring_direct : Io::plain,
                                       chosen.plain_reason, std::move(slots));
  const std::string index = options.directory + "/index";
  if (attempt.has_failed_twice()) KV_TRY_VOID(state->start_anew());
  Result<void> opened = state->open_index(index, seams.index_environment);
  if (!opened && opened.error().code == ErrorCode::corrupt) {
    KV_TRY_VOID(state->start_anew());
    opened = state->open_index(index, seams.index_environment);
  }
  KV_TRY_VOID(opened);
  KV_TRY_VOID(state->slots.trim());
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(state)));
}

DiskStore::DiskStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskStore::~DiskStore() = default;

Result<void> DiskStore::State::open_index(const std::string& path, rocksdb::Env* environment) {
  KV_TRY(index, DiskIndex::open(path, environment));
  return load_index();
}

// Damage in the index costs the blocks that it named, not the tier: their slots are free again.
Result<void> DiskStore::State::start_anew() {
  index.reset();
  KV_TRY_VOID(directory.set_index_aside());
  for (SlotTable& table : tables) table = SlotTable();
  counters.damaged_entries = 0;
  counters.out_of_budget_entries = 0;
  ++counters.damaged_indexes;
  return {};
}

// Learns which block each slot holds. Entries that are damaged, name a slot of another entry or one
// beyond the budget leave the index now, so that scan_next() needs to look at each entry only once.
Result<void> DiskStore::State::load_index() {
  std::string from;
  while (true) {
    KV_TRY(const std::vector<DiskIndex::Entry> entries, index->read_from(from, kScanChunk));
    if (entries.empty()) return {};
    from = next_key(entries.back().key);
    std::vector<std::string> erased;
    for (const DiskIndex::Entry& entry : entries) {
      const Result<Scanned> record = decode_disk_record(entry.key, entry.value);
      if (!record || record->identity.group.value >= tables.size() ||
          record->tokens.size() != layout.block_tokens) {
        ++counters.damaged_entries;
        erased.push_back(entry.key);
      } else if (!admit_entry(record->identity, erased)) {
        erased.push_back(entry.key);
      }
    }
    if (!erased.empty()) KV_TRY_VOID(index->write({}, erased));
  }
}

// Two entries of one slot: the higher generation is the later one. Adds an earlier loser to
// `erased`; false when this entry is the one to go.
bool DiskStore::State::admit_entry(const BlobIdentity& identity, std::vector<std::string>& erased) {
  if (!slot_exists(identity.group, identity.slot)) {
    ++counters.out_of_budget_entries;
    return false;
  }
  SlotTable& table = tables[identity.group.value];
  const SlotTable::Occupant& other = table.at(identity.slot);
  if (other.origin != SlotTable::Origin::none) {
    ++counters.damaged_entries;
    if (other.generation >= identity.generation) return false;
    erased.push_back(disk_key(other.key, other.depth, identity.group));
  }
  table.set(identity.slot, {.key = identity.key,
                            .depth = identity.depth,
                            .generation = identity.generation,
                            .origin = SlotTable::Origin::earlier_run});
  return true;
}

// The slot's block, if any, is gone for readers; its entry waits to leave the index.
void DiskStore::State::free_slot(GroupId group, SlotId slot) {
  const SlotTable::Occupant& occupant = tables[group.value].at(slot);
  if (occupant.origin == SlotTable::Origin::none) return;
  pending_erases.push_back({.key = occupant.key,
                            .depth = occupant.depth,
                            .group = group,
                            .slot = slot,
                            .generation = occupant.generation});
  tables[group.value].clear(slot);
}

// True when the same block was written to another slot since: that entry stays. What is missing or
// damaged is erased as well: a failed write may still be in the log.
Result<bool> DiskStore::State::entry_names_another_slot(const std::string& key,
                                                        const BlobErase& erase) const {
  const Result<std::optional<std::string>> value = index->read(key);
  if (!value && value.error().code == ErrorCode::unavailable) return value.error();
  if (!value) return false;
  const std::string bytes = value->value_or(std::string());
  const Result<Scanned> record = decode_disk_record(key, bytes);
  return record.has_value() &&
         (record->identity.slot != erase.slot || record->identity.generation != erase.generation);
}

Result<void> DiskStore::State::apply_erases() {
  if (pending_erases.empty()) return {};
  std::vector<std::string> erased;
  for (const BlobErase& erase : pending_erases) {
    std::string key = disk_key(erase.key, erase.depth, erase.group);
    KV_TRY(const bool moved, entry_names_another_slot(key, erase));
    if (!moved) erased.push_back(std::move(key));
  }
  if (!erased.empty()) KV_TRY_VOID(index->write({}, erased));
  pending_erases.clear();
  return {};
}

// A write must not overwrite a slot that the index still names.
void DiskStore::State::fail_if_erases_wait(std::span<ErrorCode> outcomes) {
  const Result<void> applied = apply_erases();
  if (applied) return;
  const ErrorCode code =
      applied.error().code == ErrorCode::exhausted ? ErrorCode::exhausted : ErrorCode::unavailable;
  for (ErrorCode& outcome : outcomes) {
    if (outcome == ErrorCode::ok) outcome = code;
  }
}

// One batch of index entries for the blocks whose payload is in place.
void DiskStore::State::record_written(std::span<const BlobWrite> blobs,
                                      std::span<ErrorCode> outcomes) {
  std::vector<DiskIndex::Entry> entries;
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const BlobIdentity& identity = blobs[i].identity;
    if (outcomes[i] != ErrorCode::ok) continue;
    entries.push_back({.key = disk_key(identity.key, identity.depth, identity.group),
                       .value = disk_value(identity, blobs[i].tokens)});
  }
  if (entries.empty()) return;
  const Result<void> written = index->write(entries, {});
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const BlobIdentity& identity = blobs[i].identity;
    if (outcomes[i] != ErrorCode::ok) continue;
    tables[identity.group.value].set(identity.slot, {.key = identity.key,
                                                     .depth = identity.depth,
                                                     .generation = identity.generation,
                                                     .origin = SlotTable::Origin::this_run});
    if (written) {
      ++counters.written_blocks;
      continue;
    }
    // The entry may still turn up after a crash, so it is erased like one that was written.
    free_slot(identity.group, identity.slot);
    outcomes[i] = written.error().code == ErrorCode::exhausted ? ErrorCode::exhausted
                                                               : ErrorCode::unavailable;
  }
}

void DiskStore::write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) {
  KV_CHECK(outcomes.size() >= blobs.size());
  outcomes = outcomes.first(blobs.size());
  std::ranges::fill(outcomes, ErrorCode::ok);
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const BlobIdentity& identity = blobs[i].identity;
    KV_CHECK(identity.group.value < state_->tables.size());
    KV_CHECK(blobs[i].payload.size() == block_bytes(state_->layout, identity.group));
    KV_CHECK(blobs[i].tokens.size() == state_->layout.block_tokens);
    if (state_->slot_exists(identity.group, identity.slot)) {
      state_->free_slot(identity.group, identity.slot);
    } else {
      outcomes[i] = ErrorCode::exhausted;
    }
  }
  if (state_->directory.is_gone()) std::ranges::fill(outcomes, ErrorCode::unavailable);
  state_->fail_if_erases_wait(outcomes);
  state_->slots.write(blobs, outcomes);
  state_->record_written(blobs, outcomes);
  state_->counters.failed_writes += static_cast<std::uint64_t>(
      std::ranges::count_if(outcomes, [](ErrorCode outcome) { return outcome != ErrorCode::ok; }));
}

void DiskStore::read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) {
  KV_CHECK(outcomes.size() >= blobs.size());
  outcomes = outcomes.first(blobs.size());
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const BlobIdentity& identity = blobs[i].identity;
    KV_CHECK(identity.group.value < state_->tables.size());
    KV_CHECK(blobs[i].payload.size() == block_bytes(state_->layout, identity.group));
    outcomes[i] = state_->holds(identity) ? ErrorCode::ok : ErrorCode::corrupt;
  }
  state_->slots.read(blobs, outcomes);
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const BlobIdentity& identity = blobs[i].identity;
    if (outcomes[i] == ErrorCode::ok) {
      ++state_->counters.read_blocks;
    } else if (outcomes[i] == ErrorCode::corrupt) {
      ++state_->counters.corrupt_blocks;
      // Bytes that are wrong stay wrong: a restart must not find them again.
      if (state_->holds(identity)) state_->free_slot(identity.group, identity.slot);
    } else {
      ++state_->counters.failed_reads;
    }
  }
  // An error keeps them waiting; the next write or sync tries again.
  static_cast<void>(state_->apply_erases());
}

void DiskStore::erase(std::span<const BlobErase> blobs) {
  for (const BlobErase& blob : blobs) {
    if (!state_->slot_exists(blob.group, blob.slot)) continue;
    const SlotTable::Occupant& occupant = state_->tables[blob.group.value].at(blob.slot);
    if (!occupant.is(blob.key, blob.depth, blob.generation)) continue;
    state_->free_slot(blob.group, blob.slot);
    ++state_->counters.erased_blocks;
  }
  // As above.
  static_cast<void>(state_->apply_erases());
}

Result<void> DiskStore::sync() {
  if (state_->directory.is_gone()) {
    return Error{ErrorCode::unavailable, "disk store: the directory was removed", "directory"};
  }
  KV_TRY_VOID(state_->apply_erases());
  KV_TRY_VOID(state_->slots.flush());
  return state_->index->flush();
}

Result<std::vector<BlobStore::Scanned>> DiskStore::scan_next(std::uint32_t limit) {
  KV_CHECK(limit > 0);
  std::vector<Scanned> answer;
  while (answer.empty() && !state_->scan_ended) {
    KV_TRY(const std::vector<DiskIndex::Entry> entries,
           state_->index->read_from(state_->scan_from, limit));
    state_->scan_ended = entries.empty();
    if (!entries.empty()) state_->scan_from = next_key(entries.back().key);
    for (const DiskIndex::Entry& entry : entries) {
      Result<Scanned> record = decode_disk_record(entry.key, entry.value);
      if (!record || !state_->holds(record->identity)) continue;
      const SlotTable& table = state_->tables[record->identity.group.value];
      if (table.at(record->identity.slot).origin != SlotTable::Origin::earlier_run) continue;
      answer.push_back(std::move(*record));
    }
  }
  return answer;
}

DiskStore::Io DiskStore::io() const { return state_->io_used; }
std::string_view DiskStore::plain_reason() const { return state_->plain_reason; }

DiskStore::Counters DiskStore::counters() const {
  const AtomicCounters& counters = state_->counters;
  return {.written_blocks = counters.written_blocks,
          .read_blocks = counters.read_blocks,
          .erased_blocks = counters.erased_blocks,
          .corrupt_blocks = counters.corrupt_blocks,
          .failed_writes = counters.failed_writes,
          .failed_reads = counters.failed_reads,
          .damaged_entries = counters.damaged_entries,
          .temp_files_removed = state_->directory.temp_files_removed(),
          .foreign_files = state_->directory.foreign_files(),
          .out_of_budget_entries = counters.out_of_budget_entries,
          .damaged_indexes = counters.damaged_indexes};
}

}  // namespace kv
