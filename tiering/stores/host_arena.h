// HostArena: memory for blocks in a sealed memfd, which other processes can map: the host tier, and
// the device tier where there is no GPU. Bytes only: no metadata and no lock lives in it. Huge
// pages where the system has them reserved, else 4 KiB pages (is_huge() tells). Owner: the shell.
// Threads: the memory may be used from any; who writes where is the Engine's business. Cost:
// mapping is once; pages are populated at first touch, or at once with `populate`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "allocator/base/result.h"
#include "tiering/stores/file_descriptor.h"

namespace kv {

class HostArena {
 public:
  struct Options {
    std::uint64_t bytes = 0;  // rounded up to the page size
    const char* name = "kv";  // shown in /proc/<pid>/maps
    bool huge_pages = true;   // try them
    bool populate = false;
    bool sole_writer = false;  // nobody else may ever write, whatever descriptor they have
  };
  // Sealed against shrinking and growing, and for a sole writer against writing by others, where
  // the kernel can (is_write_sealed() tells). fails: exhausted (no memory), invalid (0 bytes),
  // unavailable.
  [[nodiscard]] static Result<HostArena> make(const Options& options);

  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&& other) noexcept;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {base_, static_cast<std::size_t>(bytes_)};
  }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  [[nodiscard]] bool is_huge() const { return huge_; }
  [[nodiscard]] bool is_write_sealed() const { return write_sealed_; }
  // A descriptor that can only be mapped for reading, for clients that must not write. Caller
  // closes it.
  [[nodiscard]] Result<int> read_only_descriptor() const;

 private:
  HostArena() = default;
  static Result<HostArena> make_with(const Options& options, bool huge);
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  FileDescriptor descriptor_;
  bool huge_ = false;
  bool write_sealed_ = false;
};

// Maps a pool that another process passed (attach socket). fails: invalid (not sealed against
// shrinking, or smaller than `bytes`), unavailable.
class MappedArena {
 public:
  [[nodiscard]] static Result<MappedArena> map(int descriptor, std::uint64_t bytes, bool writable);
  MappedArena() = default;
  MappedArena(MappedArena&& other) noexcept;
  MappedArena& operator=(MappedArena&& other) noexcept;
  MappedArena(const MappedArena&) = delete;
  MappedArena& operator=(const MappedArena&) = delete;
  ~MappedArena();
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {base_, static_cast<std::size_t>(bytes_)};
  }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t mapped_bytes_ = 0;  // bytes_ rounded up to the file's page size
};

}  // namespace kv
