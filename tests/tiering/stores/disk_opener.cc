// Opens a disk store that may end the process, for a test outside of it: whether the store serves
// is the exit code (0), what it served is one line on standard output.
//   disk_opener DIRECTORY [kill]
//     RIGHT WRONG SET_ASIDE (blocks and indexes); all blocks are written again after that.
//     kill: ends itself by SIGKILL in the middle of the opening
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <sys/resource.h>

#include "tests/tiering/stores/lean_environment.h"
#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/disk_store_seams.h"

namespace kv {
namespace {

constexpr std::uint32_t kBlocks = 24;

// RocksDB makes files of its own in the middle of each opening.
class DeadlyFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  DeadlyFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  [[nodiscard]] const char* Name() const override { return "DeadlyFileSystem"; }
  rocksdb::IOStatus NewWritableFile(const std::string& /*name*/,
                                    const rocksdb::FileOptions& /*options*/,
                                    std::unique_ptr<rocksdb::FSWritableFile>* /*result*/,
                                    rocksdb::IODebugContext* /*context*/) override {
    (void)std::raise(SIGKILL);
    return rocksdb::IOStatus::IOError();
  }
};

int run(const std::string& directory, bool dies) {
  const KvLayout layout = padded_layout();
  const std::vector<TestBlock> blocks = make_blocks(layout, kBlocks);
  const std::unique_ptr<rocksdb::Env> environment =
      dies ? rocksdb::NewCompositeEnv(std::make_shared<DeadlyFileSystem>())
           : make_lean_environment();
  DiskStore::Options options = options_of(directory);
  options.bytes = kPage * kBlocks;
  Result<std::unique_ptr<DiskStore>> store = DiskStore::open(
      options, layout, DiskStoreSeams{.wrap_io = {}, .index_environment = environment.get()});
  if (!store) return EXIT_FAILURE;
  unsigned right = 0, wrong = 0;
  for (const TestBlock& block : blocks) {
    const ErrorCode code = read_block(**store, block);
    right += code == ErrorCode::ok ? 1U : 0U;
    wrong += code == ErrorCode::invalid ? 1U : 0U;
  }
  const std::uint64_t set_aside = (*store)->counters().damaged_indexes;
  if (!all_ok(write_blocks(**store, blocks)) || !(*store)->sync()) return EXIT_FAILURE;
  for (const TestBlock& block : blocks) {
    if (read_block(**store, block) != ErrorCode::ok) return EXIT_FAILURE;
  }
  store->reset();  // closing is a part of it
  std::printf("%u %u %u\n", right, wrong, static_cast<unsigned>(set_aside));
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) {
  if (argc < 2) return EXIT_FAILURE;
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
  return kv::run(argv[1], argc == 3 && std::string_view(argv[2]) == "kill");
}
