// Traces: the list of (now, input) of an Engine, as bytes, and a digest of what it answered.
// Recording any run and replaying it gives identical actions; a difference names the first step.
// Owner: the caller. Threads: none; no IO (shells write the bytes to a file).
// Cost: O(bytes of the input).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/base/result.h"
#include "allocator/base/time_point.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/inputs.h"

namespace kv::core {

inline constexpr std::uint32_t kTraceVersion = 3;

// Appends one record (length-prefixed, little endian) to `out`.
void append_record(TimePoint now, const InputView& input, std::vector<std::byte>& out);

// Reads records one after another. The returned input points into memory of the reader and is valid
// until the next call. Hostile bytes are an Error (corrupt), never a crash.
class TraceReader {
 public:
  explicit TraceReader(std::span<const std::byte> bytes);
  ~TraceReader();
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;
  TraceReader(TraceReader&&) = delete;
  TraceReader& operator=(TraceReader&&) = delete;

  struct Record {
    TimePoint now;
    InputView input;
  };
  [[nodiscard]] bool at_end() const;
  [[nodiscard]] Result<Record> next();

 private:
  struct Storage;
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  std::unique_ptr<Storage> storage_;
};

// A 64-bit digest of everything in `actions`, chained on `previous`; equal on every machine.
[[nodiscard]] std::uint64_t actions_digest(std::uint64_t previous, const Actions& actions);

}  // namespace kv::core
