#include "tools/cachesim/replay/sweep.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "tools/cachesim/replay/replay.h"
#include "tools/cachesim/replay/replay_report.h"

namespace kv::cachesim {
namespace {

// What the workers and the caller share.
struct Board {
  explicit Board(std::size_t points) : reports(points) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t next = 0;      // point that no worker took yet
  std::size_t finished = 0;  // points
  std::string problem;
  std::vector<nlohmann::ordered_json> reports;  // by point; null: not yet, or taken
};

void work(const Trace& trace, const std::vector<SweepPoint>& points, Board& board) {
  for (;;) {
    std::unique_lock lock(board.mutex);
    if (board.next == points.size() || !board.problem.empty()) return;
    const std::size_t at = board.next++;
    lock.unlock();
    const ReplayOptions& options = points[at].options;
    const ReplayOutcome outcome = replay(trace, options);
    const Result<void> kept = check_conservation(trace, outcome);
    nlohmann::ordered_json report = report_json(trace, options, outcome);
    lock.lock();
    board.reports[at] = std::move(report);
    ++board.finished;
    if (!kept) board.problem = kept.error().reason;
    board.changed.notify_one();
  }
}

}  // namespace

std::string sweep(const Trace& trace, const std::vector<SweepPoint>& points, unsigned workers,
                  const std::function<void(const SweepPoint&, const nlohmann::ordered_json&)>& done,
                  const std::function<void(std::size_t)>& finished) {
  Board board(points.size());
  std::vector<std::jthread> threads;
  const std::size_t count = std::min<std::size_t>(std::max(1U, workers), points.size());
  threads.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&] { work(trace, points, board); });
  }
  std::unique_lock lock(board.mutex);
  for (std::size_t told = 0; told < points.size();) {
    board.changed.wait(lock,
                       [&] { return !board.reports[told].is_null() || !board.problem.empty(); });
    if (!board.problem.empty()) break;
    const nlohmann::ordered_json report = std::exchange(board.reports[told], nullptr);
    const std::size_t so_far = board.finished;
    lock.unlock();
    if (finished) finished(so_far);
    done(points[told++], report);
    lock.lock();
  }
  return board.problem;
}

}  // namespace kv::cachesim
