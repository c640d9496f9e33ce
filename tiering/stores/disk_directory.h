// DiskDirectory: the folder of a disk store: made private to the user, locked for one service, and
// cleaned of temp files that a crash left. A damaged index is kept beside the new one, the last one
// only.
// Owner: the disk store, which keeps it as long as it lives. Threads: none. Cost: one listing.
#pragma once

#include <cstdint>
#include <string>

#include "allocator/base/result.h"
#include "tiering/stores/file_descriptor.h"

namespace kv {

class DiskDirectory {
 public:
  // fails: busy (another service has it), exhausted (no space), unavailable.
  [[nodiscard]] static Result<DiskDirectory> open(const std::string& path);

  // Slab files or an index are in this directory, which need not be held, nor be there.
  [[nodiscard]] static bool has_blocks(const std::string& path);

  // Makes room for a new index: what is there becomes index.damaged, instead of an older one.
  // fails: exhausted, unavailable.
  [[nodiscard]] Result<void> set_index_aside();

  // The directory was removed, or another took its place: what is written goes nowhere.
  [[nodiscard]] bool is_gone() const;

  [[nodiscard]] std::uint64_t temp_files_removed() const { return temp_files_removed_; }
  // Files that are none of ours; they are left alone.
  [[nodiscard]] std::uint64_t foreign_files() const { return foreign_files_; }
  // Slab files or an index are there.
  [[nodiscard]] bool holds_blocks() const { return holds_blocks_; }

 private:
  DiskDirectory() = default;
  [[nodiscard]] Result<void> look_through();

  std::string path_;
  FileDescriptor lock_;
  std::uint64_t temp_files_removed_ = 0;
  std::uint64_t foreign_files_ = 0;
  bool holds_blocks_ = false;
};

}  // namespace kv
