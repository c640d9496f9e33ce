// Writes, erases and rewrites blocks of a disk store for ever, and says on standard output what it
// has been promised, one line each: the crash test kills it and checks the promises.
//   disk_crash_writer DIRECTORY SEED FIRST_GENERATION
//     started | write SLOT GENERATION (from now on maybe) | done SLOT GENERATION (stored) |
//     erase SLOT (from now on maybe gone) | synced
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"

namespace kv {
namespace {

constexpr std::uint32_t kSlots = 64;

// One write call, so that a kill never leaves half of it.
bool say(const std::string& text) {
  return ::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool step(DiskStore& store, const KvLayout& layout, Prng& prng,
          std::map<std::uint32_t, TestBlock>& live, std::uint32_t& generation) {
  std::map<std::uint32_t, TestBlock> batch;
  for (int i = 0; i < 12; ++i) {
    const auto slot = static_cast<std::uint32_t>(prng.below(kSlots));
    batch.insert_or_assign(slot, make_block(layout, slot, ++generation, slot % 9));
  }
  std::string intent;
  std::string promise;
  std::vector<BlobErase> erases;
  std::vector<TestBlock> blocks;
  for (const auto& [slot, block] : batch) {
    if (const auto found = live.find(slot); found != live.end()) {
      intent += "erase " + std::to_string(slot) + "\n";
      erases.push_back(found->second.to_erase());
    }
    const std::string place =
        std::to_string(slot) + " " + std::to_string(block.identity.generation) + "\n";
    intent += "write " + place;
    promise += "done " + place;
    blocks.push_back(block);
    live.insert_or_assign(slot, block);
  }
  if (!say(intent)) return false;
  store.erase(erases);
  if (!all_ok(write_blocks(store, blocks))) return false;
  if (prng.chance(1, 4)) {
    if (!store.sync().has_value()) return false;
    promise += "synced\n";
  }
  return say(promise);
}

int run(const std::string& directory, std::uint64_t seed, std::uint32_t generation) {
  const KvLayout layout = small_layout();
  DiskStore::Options options = options_of(directory);
  options.bytes = kSlots * DiskStore::slot_bytes(layout, GroupId(0));
  Result<std::unique_ptr<DiskStore>> store = DiskStore::open(options, layout);
  if (!store) return EXIT_FAILURE;
  std::map<std::uint32_t, TestBlock> live;
  for (const BlobStore::Scanned& entry : scan_all(**store)) {
    const std::uint32_t slot = entry.identity.slot.value;
    live.insert_or_assign(
        slot, make_block(layout, slot, entry.identity.generation, entry.identity.depth));
  }
  if (!say("started\n")) return EXIT_FAILURE;
  Prng prng(seed);
  while (step(**store, layout, prng, live, generation)) {
  }
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) {
  if (argc != 4) return EXIT_FAILURE;
  return kv::run(argv[1], std::strtoull(argv[2], nullptr, 10),
                 static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)));
}
