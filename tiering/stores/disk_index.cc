#include "tiering/stores/disk_index.h"

#include <cstdarg>
#include <exception>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

namespace kv {
namespace {

Error error_of(const rocksdb::Status& status) {
  if (status.IsNoSpace()) return Error{ErrorCode::exhausted, "disk index: no space", {}};
  if (status.IsCorruption() || status.IsInvalidArgument() || status.IsNotFound() ||
      status.IsPathNotFound()) {
    return Error{
        ErrorCode::corrupt, "disk index: damaged; remove the directory to start empty", {}};
  }
  return Error{ErrorCode::unavailable, "disk index: input/output error", {}};
}

Error closed_error() {
  return Error{ErrorCode::unavailable, "disk index: closed after an error", {}};
}

// RocksDB does not throw by itself, but damaged bytes and a lack of memory can make it.
template <class Action>
auto guarded(const Action& action) -> decltype(action()) {
  try {
    return action();
  } catch (const std::exception&) {
    return Error{ErrorCode::unavailable, "disk index: RocksDB threw", {}};
  }
}

// RocksDB's own log file ends the process by an assertion when the disk is full; what its calls
// answer says enough.
class NoLog final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

rocksdb::Options options_of(rocksdb::Env* environment) {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20U;
  rocksdb::Options options;
  if (environment != nullptr) options.env = environment;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;  // keys and digests do not compress
  options.write_buffer_size = 32 * kMebibyte;
  options.max_background_jobs = 2;
  options.max_open_files = 256;
  options.max_file_opening_threads = 1;  // where there is no thread left it would end the process
  options.paranoid_checks = true;
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.avoid_flush_during_shutdown = false;
  options.info_log = std::make_shared<NoLog>();
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  rocksdb::BlockBasedTableOptions table;
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  table.filter_policy.reset(rocksdb::NewRibbonFilterPolicy(10));
  table.block_cache = rocksdb::NewLRUCache(16 * kMebibyte);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// RocksDB would wait for ever at a FIFO, and follow a symlink to somebody else's file.
Result<void> check_files(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator at(directory, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::filesystem::file_type type = at->symlink_status(error).type();
    if (error) break;
    if (type != std::filesystem::file_type::regular &&
        type != std::filesystem::file_type::directory) {
      return Error{ErrorCode::corrupt, "disk index: holds what is no plain file", {}};
    }
  }
  return {};  // what cannot be listed RocksDB reports
}

// RocksDB makes its threads when it first needs them, in places where it cannot say that there are
// none. Here that is an error like others.
void make_threads(rocksdb::Env& environment) {
  for (const auto priority : {rocksdb::Env::Priority::LOW, rocksdb::Env::Priority::HIGH}) {
    environment.SetBackgroundThreads(1, priority);
    environment.Schedule([](void*) {}, nullptr, priority);
  }
}

rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct DiskIndex::State {
  std::string directory;
  rocksdb::Env* environment = nullptr;
  std::unique_ptr<rocksdb::DB> database;  // null after a reopening that failed
  bool failed = false;                    // the last write did

  Result<void> reopen() {
    database.reset();
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(options_of(environment), directory, &opened);
    database.reset(opened);
    if (!status.ok()) return error_of(status);
    failed = false;
    return {};
  }
  // After an error RocksDB takes no more writes, and its own resumption gives up on errors of the
  // log. Its log holds all that was written before, so opening it anew loses nothing.
  Result<void> revive() { return failed || database == nullptr ? reopen() : Result<void>(); }
  Result<void> note(const rocksdb::Status& status) {
    if (status.ok()) return {};
    failed = true;
    return error_of(status);
  }
};

DiskIndex::DiskIndex(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskIndex::~DiskIndex() = default;

Result<std::unique_ptr<DiskIndex>> DiskIndex::open(const std::string& directory,
                                                   rocksdb::Env* environment) {
  return guarded([&]() -> Result<std::unique_ptr<DiskIndex>> {
    auto state = std::make_unique<State>();
    state->directory = directory;
    state->environment = environment;
    make_threads(environment == nullptr ? *rocksdb::Env::Default() : *environment);
    KV_TRY_VOID(check_files(directory));
    KV_TRY_VOID(state->reopen());
    return std::unique_ptr<DiskIndex>(new DiskIndex(std::move(state)));
  });
}

Result<void> DiskIndex::write(std::span<const Entry> puts,
                              std::span<const std::string> erased_keys) {
  return guarded([&]() -> Result<void> {
    KV_TRY_VOID(state_->revive());
    rocksdb::WriteBatch batch;
    for (const std::string& key : erased_keys) batch.Delete(slice(key));
    for (const Entry& entry : puts) batch.Put(slice(entry.key), slice(entry.value));
    return state_->note(state_->database->Write(rocksdb::WriteOptions(), &batch));
  });
}

Result<std::optional<std::string>> DiskIndex::read(std::string_view key) const {
  return guarded([&]() -> Result<std::optional<std::string>> {
    if (state_->database == nullptr) return closed_error();
    std::string value;
    const rocksdb::Status status =
        state_->database->Get(rocksdb::ReadOptions(), slice(key), &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return error_of(status);
    return std::optional<std::string>(std::move(value));
  });
}

Result<std::vector<DiskIndex::Entry>> DiskIndex::read_from(std::string_view from,
                                                           std::uint32_t limit) const {
  return guarded([&]() -> Result<std::vector<Entry>> {
    if (state_->database == nullptr) return closed_error();
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    options.readahead_size = std::size_t{256} << 10U;
    const std::unique_ptr<rocksdb::Iterator> at(state_->database->NewIterator(options));
    std::vector<Entry> entries;
    for (at->Seek(slice(from)); at->Valid() && entries.size() < limit; at->Next()) {
      entries.push_back({.key = at->key().ToString(), .value = at->value().ToString()});
    }
    if (!at->status().ok()) return error_of(at->status());
    return entries;
  });
}

Result<void> DiskIndex::flush() {
  return guarded([&]() -> Result<void> {
    KV_TRY_VOID(state_->revive());
    return state_->note(state_->database->FlushWAL(true));
  });
}

}  // namespace kv
