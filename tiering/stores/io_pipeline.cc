#include "tiering/stores/io_pipeline.h"

#include <cerrno>
#include <vector>

#include "allocator/base/check.h"
#include "tiering/stores/aligned_buffer.h"

namespace kv {
namespace {

struct Lane {
  std::size_t job = 0;
  FileRequest request;         // what is still to move
  std::uint32_t restarts = 0;  // short results without progress
};

constexpr std::uint32_t kRestartsMax = 8;

// What to do after a completion: nothing more (the job's error), or another submission.
std::optional<int> advance(Lane& lane, std::int64_t result) {
  if (result < 0) {
    if ((result == -EINTR || result == -EAGAIN) && ++lane.restarts <= kRestartsMax) return {};
    return static_cast<int>(-result);
  }
  const auto moved = static_cast<std::size_t>(result);
  if (moved >= lane.request.bytes.size()) return 0;
  // O_DIRECT goes on at a unit only; the bytes after it are moved again.
  const std::size_t whole = moved - moved % kDiskUnitBytes;
  if (whole == 0) {
    if (moved == 0 && lane.request.kind == FileRequest::Kind::read) return kEndOfFileError;
    if (++lane.restarts > kRestartsMax) {
      return lane.request.kind == FileRequest::Kind::read ? kEndOfFileError : EIO;
    }
  }
  lane.request.bytes = lane.request.bytes.subspan(whole);
  lane.request.offset += whole;
  return {};
}

}  // namespace

void run_jobs(FileIo& io, std::uint32_t lane_count, const IoJobs& jobs) {
  KV_CHECK(lane_count > 0);
  std::vector<Lane> lanes(lane_count);
  std::vector<std::uint32_t> free_lanes;
  for (std::uint32_t lane = lane_count; lane > 0; --lane) free_lanes.push_back(lane - 1);
  std::size_t next = 0;
  while (next < jobs.count || free_lanes.size() < lane_count) {
    while (next < jobs.count && !free_lanes.empty()) {
      const std::size_t job = next++;
      const std::uint32_t index = free_lanes.back();
      const std::optional<FileRequest> request = jobs.prepare(job, index);
      if (!request) continue;
      free_lanes.pop_back();
      lanes[index] = {.job = job, .request = *request, .restarts = 0};
      io.submit(index, *request);
    }
    if (free_lanes.size() == lane_count) continue;
    const FileCompletion completion = io.wait();
    KV_CHECK(completion.lane < lane_count);
    Lane& lane = lanes[completion.lane];
    if (const std::optional<int> error = advance(lane, completion.result)) {
      jobs.finish(lane.job, completion.lane, *error);
      free_lanes.push_back(completion.lane);
    } else {
      io.submit(completion.lane, lane.request);
    }
  }
}

}  // namespace kv
