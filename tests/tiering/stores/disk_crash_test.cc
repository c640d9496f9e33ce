// kill -9 in the middle of writes: what was promised is there and right, nothing else is.
#include <csignal>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/built_program.h"
#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/file_descriptor.h"

namespace kv {
namespace {

// What one slot may hold: the promised generation (0: nothing), and those of unfinished work.
struct SlotPromise {
  std::uint32_t stored = 0;
  bool may_be_erased = false;
  std::set<std::uint32_t> may_be_stored;
};
using Promises = std::map<std::uint32_t, SlotPromise>;

void note(const std::string& line, Promises& promises) {
  std::istringstream words(line);
  std::string verb;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  words >> verb >> slot >> generation;
  if (verb == "erase") promises[slot].may_be_erased = true;
  if (verb == "write") promises[slot].may_be_stored.insert(generation);
  if (verb == "done")
    promises[slot] = {.stored = generation, .may_be_erased = false, .may_be_stored = {}};
}

struct Writer {
  pid_t process = -1;
  FileDescriptor output;
};
Writer start_writer(const std::string& directory, std::uint64_t seed,
                    std::uint32_t first_generation) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Writer writer;
  writer.output = FileDescriptor(ends[0]);
  const FileDescriptor input(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  std::string program = tests::built_program("disk_crash_writer");
  std::string arguments[3] = {directory, std::to_string(seed), std::to_string(first_generation)};
  char* argv[] = {program.data(), arguments[0].data(), arguments[1].data(), arguments[2].data(),
                  nullptr};
  const int error =
      ::posix_spawn(&writer.process, program.c_str(), &actions, nullptr, argv, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0);
  return writer;
}

// Reads `lines_wanted` lines, kills the writer there, and reads what it had still said.
std::vector<std::string> kill_after(const Writer& writer, std::size_t lines_wanted) {
  std::string text;
  std::size_t lines = 0;
  bool killed = false;
  char bytes[256];
  while (true) {
    const ssize_t count = ::read(writer.output.get(), bytes, sizeof bytes);
    if (count <= 0) break;
    text.append(bytes, static_cast<std::size_t>(count));
    lines += static_cast<std::size_t>(std::count(bytes, bytes + count, '\n'));
    if (lines >= lines_wanted && !killed) {
      ::kill(writer.process, SIGKILL);
      killed = true;
    }
  }
  int status = 0;
  ::waitpid(writer.process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the writer failed by itself";
  std::vector<std::string> said;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) said.push_back(line);
  return said;
}

// Everything promised is there; everything there was promised or under way; all of it reads right.
// Leaves in `promises` what is there.
void check(const std::string& directory, Promises& promises) {
  const KvLayout layout = small_layout();
  DiskStore::Options options = options_of(directory);
  options.bytes = 64 * DiskStore::slot_bytes(layout, GroupId(0));
  const std::unique_ptr<DiskStore> store = open_store(options, layout);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->counters().damaged_entries, 0U);
  std::map<std::uint32_t, std::uint32_t> there;  // slot -> generation
  for (const BlobStore::Scanned& entry : scan_all(*store)) {
    const std::uint32_t slot = entry.identity.slot.value;
    ASSERT_TRUE(there.emplace(slot, entry.identity.generation).second) << "slot twice";
    const TestBlock block =
        make_block(layout, slot, entry.identity.generation, entry.identity.depth);
    ASSERT_TRUE(same_identity(entry.identity, block.identity));
    ASSERT_EQ(entry.tokens, block.tokens);
    ASSERT_EQ(read_block(*store, block), ErrorCode::ok) << "slot " << slot;
    const SlotPromise& promise = promises[slot];
    ASSERT_TRUE(entry.identity.generation == promise.stored ||
                promise.may_be_stored.contains(entry.identity.generation))
        << "slot " << slot << " holds generation " << entry.identity.generation;
  }
  for (auto& [slot, promise] : promises) {
    const bool present = there.contains(slot);
    ASSERT_TRUE(present || promise.stored == 0 || promise.may_be_erased) << "slot " << slot;
    promise = {.stored = present ? there[slot] : 0, .may_be_erased = false, .may_be_stored = {}};
  }
}

// SCENARIOS REC-05: killed at random points
TEST(DiskCrash, AKillLosesNothingThatWasPromisedAndInventsNothing) {
  const TempDirectory directory;
  Promises promises;
  std::uint64_t done = 0;
  Prng prng(2024);
  for (std::uint32_t kill = 1; kill <= 20; ++kill) {
    SCOPED_TRACE(kill);
    const Writer writer = start_writer(directory / "store", kill, kill * 1'000'000);
    ASSERT_GT(writer.process, 0);
    for (const std::string& line : kill_after(writer, 1 + prng.below(600))) {
      note(line, promises);
      done += line.starts_with("done") ? 1 : 0;
    }
    check(directory / "store", promises);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(done, 1'000U) << "the writer wrote too little for the kills to mean anything";
}

}  // namespace
}  // namespace kv
