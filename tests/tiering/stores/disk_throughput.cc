// How fast the disk store moves blocks of 256 KiB, against bare O_DIRECT pwrite/pread one at a time
// in the same run, interleaved. Prints a table; it is a measurement, not a test.
//   disk_throughput DIRECTORY [BLOCKS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/aligned_buffer.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/file_descriptor.h"

namespace kv {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{256} << 10U;
constexpr int kRounds = 5;

double gigabytes_per_second(std::size_t blocks, const std::function<bool()>& action) {
  const auto start = std::chrono::steady_clock::now();
  if (!action()) std::fputs("an operation failed\n", stderr);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(blocks * kBlockBytes) / seconds.count() / 1e9;
}

bool move_raw(int descriptor, bool writing, std::span<std::byte> memory) {
  for (std::size_t at = 0; at < memory.size(); at += kBlockBytes) {
    const auto offset = static_cast<off_t>(at);
    const ssize_t moved = writing ? ::pwrite(descriptor, memory.data() + at, kBlockBytes, offset)
                                  : ::pread(descriptor, memory.data() + at, kBlockBytes, offset);
    if (moved != static_cast<ssize_t>(kBlockBytes)) return false;
  }
  return true;
}

struct Blocks {
  std::vector<BlobWrite> writes;
  std::vector<BlobRead> reads;
  std::vector<BlobErase> erases;
};

bool move_blocks(DiskStore& store, bool writing, const Blocks& blocks) {
  std::vector<ErrorCode> outcomes(blocks.writes.size());
  if (writing) {
    store.erase(blocks.erases);
    store.write(blocks.writes, outcomes);
  } else {
    store.read(blocks.reads, outcomes);
  }
  return all_ok(outcomes);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int run(const std::string& directory, std::uint32_t count) {
  const KvLayout layout = layout_of(16, 4, 32, 32);  // 262,144 bytes
  DiskStore::Options options = {.directory = directory, .bytes = count * kBlockBytes};
  Result<std::unique_ptr<DiskStore>> store = DiskStore::open(options, layout);
  if (!store) return EXIT_FAILURE;
  const AlignedBuffer memory(count * kBlockBytes);
  std::vector<TestBlock> made = make_blocks(layout, count);
  Blocks blocks;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::span<std::byte> payload = memory.bytes().subspan(i * kBlockBytes, kBlockBytes);
    std::ranges::copy(made[i].payload, payload.begin());
    made[i].payload = {};
    blocks.writes.push_back(
        {.identity = made[i].identity, .tokens = made[i].tokens, .payload = payload});
    blocks.reads.push_back({.identity = made[i].identity, .payload = payload});
    blocks.erases.push_back(made[i].to_erase());
  }
  const FileDescriptor raw(
      ::open((directory + "/raw").c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
  move_raw(raw.get(), true, memory.bytes());  // both files have been written once
  move_blocks(**store, true, blocks);
  for (const bool writing : {true, false}) {
    std::vector<double> bare, ours, ratios;
    for (int round = 0; round < kRounds; ++round) {
      bare.push_back(gigabytes_per_second(
          count, [&] { return move_raw(raw.get(), writing, memory.bytes()); }));
      ours.push_back(
          gigabytes_per_second(count, [&] { return move_blocks(**store, writing, blocks); }));
      ratios.push_back(ours.back() / bare.back());
    }
    std::printf("%-5s  store %.2f GB/s  bare O_DIRECT, one at a time %.2f GB/s  ratio %.2f (%s)\n",
                writing ? "write" : "read", median(ours), median(bare), median(ratios),
                (*store)->io() == DiskStore::Io::plain ? "plain" : "io_uring");
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) {
  if (argc < 2) return EXIT_FAILURE;
  return kv::run(argv[1], argc > 2 ? static_cast<std::uint32_t>(std::atoi(argv[2])) : 1'024);
}
