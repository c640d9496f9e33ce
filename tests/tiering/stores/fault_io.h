// FaultIo: a FileIo between the store and the disk that fails when its plan says so. The test keeps
// the plan, which outlives the store.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "tiering/stores/disk_store_seams.h"
#include "tiering/stores/file_io.h"

namespace kv {

struct FaultPlan {
  // For each request, by its number: a negative errno to answer with, a positive number of bytes to
  // move at most, or nothing to let it be.
  std::function<std::optional<std::int64_t>(std::uint64_t number, const FileRequest& request)>
      request_fault;
  std::function<int()> flush_fault;  // an errno, or 0
  std::function<int(std::uint64_t bytes)> reserve_fault;
  std::uint64_t requests = 0;
};

class FaultIo final : public FileIo {
 public:
  FaultIo(std::unique_ptr<FileIo> inner, FaultPlan& plan)
      : inner_(std::move(inner)), plan_(&plan) {}

  void submit(std::uint32_t lane, const FileRequest& request) override {
    std::optional<std::int64_t> fault;
    const std::uint64_t number = plan_->requests++;
    if (plan_->request_fault) fault = plan_->request_fault(number, request);
    if (fault && *fault <= 0) {
      failed_.push_back({.lane = lane, .result = *fault});
      return;
    }
    FileRequest passed = request;
    if (fault) {
      const auto bytes_max = static_cast<std::size_t>(*fault);
      passed.bytes = passed.bytes.first(std::min(passed.bytes.size(), bytes_max));
    }
    inner_->submit(lane, passed);
  }
  FileCompletion wait() override {
    if (failed_.empty()) return inner_->wait();
    const FileCompletion completion = failed_.front();
    failed_.pop_front();
    return completion;
  }
  int flush(int descriptor) override {
    const int error = plan_->flush_fault ? plan_->flush_fault() : 0;
    return error != 0 ? error : inner_->flush(descriptor);
  }
  int reserve(int descriptor, std::uint64_t bytes) override {
    const int error = plan_->reserve_fault ? plan_->reserve_fault(bytes) : 0;
    return error != 0 ? error : inner_->reserve(descriptor, bytes);
  }

 private:
  std::unique_ptr<FileIo> inner_;
  FaultPlan* plan_;
  std::deque<FileCompletion> failed_;
};

inline DiskStoreSeams seams_of(FaultPlan& plan) {
  DiskStoreSeams seams;
  seams.wrap_io = [&plan](std::unique_ptr<FileIo> io) {
    return std::unique_ptr<FileIo>(std::make_unique<FaultIo>(std::move(io), plan));
  };
  return seams;
}

}  // namespace kv
