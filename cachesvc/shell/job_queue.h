// JobQueue: jobs for the threads of one kind of worker, in order, and their end.
// Owner: the worker class, which outlives its threads. Threads: any. Bounded by its users, who say
// how. Cost: one lock a push or pop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace kv::shell {

class JobQueue {
 public:
  using Job = std::function<void()>;

  // `thread_count` threads will be in run_jobs().
  explicit JobQueue(std::size_t thread_count) : running_(thread_count) {}

  void push(Job job);
  // Each thread's life: returns when the queue was closed and every job before that was taken, and
  // after `last` was called.
  void run_jobs(const Job& last);
  void close();
  // True when every thread ended by the deadline.
  [[nodiscard]] bool wait_until_ended(std::chrono::steady_clock::time_point deadline);

 private:
  [[nodiscard]] Job pop();  // empty: closed

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::size_t running_;
  bool closed_ = false;
};

}  // namespace kv::shell
