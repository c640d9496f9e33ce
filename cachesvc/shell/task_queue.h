// TaskQueue: tasks for the threads of one kind of worker, and their end.
// Owner: the worker class, which outlives its threads. Threads: any. Cost: one lock a push or pop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace kv::shell {

template <class Task>
class TaskQueue {
 public:
  explicit TaskQueue(std::size_t thread_count) : running_(thread_count) {}

  void push(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  // Waits for a task; nothing when the queue was closed and everything before was taken.
  [[nodiscard]] std::optional<Task> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return std::nullopt;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  // Each thread says so as its last act.
  void thread_ended() {
    {
      const std::lock_guard lock(mutex_);
      --running_;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool wait_until_ended(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return running_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::size_t running_;
  bool closed_ = false;
};

}  // namespace kv::shell
