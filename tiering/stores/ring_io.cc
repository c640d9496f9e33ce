#include "tiering/stores/ring_io.h"

#include <cerrno>
#include <ctime>
#include <utility>
#include <vector>

#include <liburing.h>

#include "allocator/base/check.h"

namespace kv {
namespace {

// Enough to keep the disk busy while the next blocks are copied and summed.
constexpr std::uint32_t kSubmitTogether = 4;

class RingIo final : public FileIo {
 public:
  RingIo() = default;
  RingIo(const RingIo&) = delete;
  RingIo& operator=(const RingIo&) = delete;
  RingIo(RingIo&&) = delete;
  RingIo& operator=(RingIo&&) = delete;
  ~RingIo() override {
    if (made_) io_uring_queue_exit(&ring_);
  }

  int make(std::uint32_t queue_depth) {
    const int error = -io_uring_queue_init(queue_depth, &ring_, 0);
    made_ = error == 0;
    return error;
  }

  void submit(std::uint32_t lane, const FileRequest& request) override {
    if (plain_ != nullptr) {
      ++done_plainly_;
      return plain_->submit(lane, request);
    }
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    KV_CHECK(entry != nullptr);  // lanes are no more than the ring's entries
    const auto count = static_cast<unsigned>(request.bytes.size());
    if (request.kind == FileRequest::Kind::read) {
      io_uring_prep_read(entry, request.descriptor, request.bytes.data(), count, request.offset);
    } else {
      io_uring_prep_write(entry, request.descriptor, request.bytes.data(), count, request.offset);
    }
    io_uring_sqe_set_data64(entry, lane);
    waiting_.push_back(lane);
    if (waiting_.size() >= kSubmitTogether) enter(0);
  }

  FileCompletion wait() override {
    if (!waiting_.empty()) enter(0);
    if (!refused_.empty()) {
      const FileCompletion completion = {.lane = refused_.back(), .result = -EIO};
      refused_.pop_back();
      return completion;
    }
    if (with_kernel_ == 0) {
      KV_CHECK(done_plainly_ > 0);
      --done_plainly_;
      return plain_->wait();
    }
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) != 0) enter(1);
    const FileCompletion completion = {
        .lane = static_cast<std::uint32_t>(io_uring_cqe_get_data64(entry)), .result = entry->res};
    io_uring_cqe_seen(&ring_, entry);
    --with_kernel_;
    return completion;
  }

  int flush(int descriptor) override { return flush_file(descriptor); }
  int reserve(int descriptor, std::uint64_t bytes) override {
    return reserve_file(descriptor, bytes);
  }

 private:
  // Hands the kernel what waits. A kernel short of memory is asked again; one that refuses for good
  // is asked no more.
  void enter(unsigned wait_count) {
    constexpr int kTriesMax = 10'000;
    for (int tries = 0; plain_ == nullptr && tries < kTriesMax; ++tries) {
      const int result =
          wait_count == 0 ? io_uring_submit(&ring_) : io_uring_submit_and_wait(&ring_, wait_count);
      if (result >= 0) {
        with_kernel_ += static_cast<std::uint32_t>(result);
        waiting_.erase(waiting_.begin(), waiting_.begin() + result);
        return;
      }
      if (result == -EINTR) continue;
      if (result != -EAGAIN && result != -EBUSY && result != -ENOMEM) break;
      pause();
    }
    if (plain_ == nullptr) abandon();
    pause();
  }
  // Requests cannot be taken back from the kernel, and their buffers are its own till they are
  // done: they come by the queue that is shared with it, without a call. What it never saw fails.
  void abandon() {
    refused_ = std::exchange(waiting_, {});
    plain_ = make_plain_io();
  }
  static void pause() {
    constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&kPause, nullptr);
  }

  io_uring ring_{};
  bool made_ = false;
  std::uint32_t with_kernel_ = 0;
  std::vector<std::uint32_t> waiting_;  // lanes that are prepared, not yet with the kernel
  std::unique_ptr<FileIo> plain_;       // instead of the ring, once the kernel refuses it
  std::vector<std::uint32_t> refused_;  // lanes that the kernel never saw
  std::uint32_t done_plainly_ = 0;
};

}  // namespace

Result<std::unique_ptr<FileIo>> make_ring_io(std::uint32_t queue_depth) {
  auto io = std::make_unique<RingIo>();
  switch (io->make(queue_depth)) {
    case 0:
      return std::unique_ptr<FileIo>(std::move(io));
    case ENOSYS:
      return Error{ErrorCode::unsupported, "io_uring: the kernel has none", {}};
    case EPERM:
    case EACCES:
      return Error{ErrorCode::unsupported, "io_uring: forbidden to this process", {}};
    case ENOMEM:
      return Error{ErrorCode::unavailable, "io_uring: no memory (RLIMIT_MEMLOCK)", {}};
    default:
      return Error{ErrorCode::unavailable, "io_uring: the ring cannot be made", "queue_depth"};
  }
}

}  // namespace kv
