#include "cachesvc/shell/completion_queue.h"

#include <iterator>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

namespace kv::shell {

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::make() {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return Error{ErrorCode::unavailable, "no eventfd", {}};
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(std::move(wake)));
}

void CompletionQueue::push(Completion completion) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(completion));
  }
  // Fails only when the counter is full, and then the descriptor is readable already.
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void CompletionQueue::drain(std::vector<Completion>& out) {
  // Counter first: what is pushed after it was read wakes the loop again.
  std::uint64_t count = 0;
  (void)!read(wake_.get(), &count, sizeof(count));
  const std::lock_guard lock(mutex_);
  std::move(items_.begin(), items_.end(), std::back_inserter(out));
  items_.clear();
}

}  // namespace kv::shell
