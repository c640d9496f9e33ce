// Runs many file requests with a bounded number in flight, until each is whole or has failed.
// Owner: the caller. Threads: one caller. Cost: O(requests); no allocation but the lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "tiering/stores/file_io.h"

namespace kv {

// The errno of a read that met the end of its file.
inline constexpr int kEndOfFileError = -1;

struct IoJobs {
  std::size_t count = 0;
  // Gives the request of a job, or none when there is nothing to move. A lane is in use by one job
  // at a time, so it can own a buffer.
  std::function<std::optional<FileRequest>(std::size_t job, std::uint32_t lane)> prepare;
  // error: 0, an errno, or kEndOfFileError.
  std::function<void(std::size_t job, std::uint32_t lane, int error)> finish;
};

// requires: 0 < lane_count <= the queue depth of `io`.
void run_jobs(FileIo& io, std::uint32_t lane_count, const IoJobs& jobs);

}  // namespace kv
