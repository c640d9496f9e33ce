#include "cachesvc/shell/job_queue.h"

#include <utility>

namespace kv::shell {

void JobQueue::push(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

JobQueue::Job JobQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
  if (jobs_.empty()) return {};
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void JobQueue::run_jobs(const Job& last) {
  while (const Job job = pop()) job();
  last();
  {
    const std::lock_guard lock(mutex_);
    --running_;
  }
  changed_.notify_all();
}

void JobQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool JobQueue::wait_until_ended(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return running_ == 0; });
}

}  // namespace kv::shell
