// SlabFiles: the files slab.<group>.<n> of a disk store, opened at first use and grown in steps
// with room reserved, so that a write neither extends a file nor runs out of space half way. Owner:
// the disk store. Threads: one caller at a time. Cost: one descriptor a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "tiering/stores/file_descriptor.h"
#include "tiering/stores/file_io.h"

namespace kv {

class SlabFiles {
 public:
  struct Options {
    std::string directory;
    bool direct = false;                    // O_DIRECT
    std::uint64_t slab_bytes = 0;           // a file's size at most
    std::uint64_t budget_bytes = 0;         // of all groups together
    std::vector<std::uint64_t> slot_bytes;  // of each group
  };
  struct Place {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };

  SlabFiles(Options options, FileIo& io);  // `io` outlives it

  [[nodiscard]] std::uint32_t slot_count(GroupId group) const;
  [[nodiscard]] std::uint64_t slot_bytes(GroupId group) const;

  // requires (both): slot < slot_count(group).
  // fails: not_found (no such file), unavailable.
  [[nodiscard]] Result<Place> place_to_read(GroupId group, SlotId slot);
  // Makes the file and reserves room; some of the disk is left to the index, without which nothing
  // can be kept. fails: exhausted (no space), unavailable.
  [[nodiscard]] Result<Place> place_to_write(GroupId group, SlotId slot);

  // Flushes what was written since the last flush. Once a flush has failed the kernel may have
  // dropped the bytes, so it fails for ever after. A file that was removed is no durable one
  // either. fails: unavailable.
  [[nodiscard]] Result<void> flush();

  // Gives back the space beyond the budget, left by an earlier run with a larger one. fails:
  // unavailable (a name of ours that is no plain file, for one).
  [[nodiscard]] Result<void> trim();

 private:
  struct File {
    FileDescriptor descriptor;
    std::uint64_t bytes = 0;
    bool written = false;
  };
  struct Group {
    std::uint64_t slot_bytes = 0;
    std::uint32_t slot_count = 0;
    std::uint32_t slots_per_file = 0;
    std::vector<File> files;
  };
  [[nodiscard]] std::string path(std::size_t group, std::size_t file) const;
  [[nodiscard]] Result<File*> opened(GroupId group, SlotId slot, bool create);
  [[nodiscard]] Result<void> grow(File& file, std::uint64_t end, std::uint64_t bytes_max);
  [[nodiscard]] std::uint64_t file_bytes_max(const Group& group, std::size_t file) const;
  [[nodiscard]] Result<void> trim_file(std::size_t group, std::size_t file);

  Options options_;
  FileIo* io_;
  std::vector<Group> groups_;
  bool directory_changed_ = false;
  bool flush_failed_ = false;
};

}  // namespace kv
