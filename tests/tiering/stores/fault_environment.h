// A RocksDB environment whose writes to files of a chosen ending fail while the test says so.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/io_status.h>

namespace kv {

struct IndexFaults {
  enum class Kind : std::uint8_t { none, io_error, no_space };
  std::atomic<Kind> append = Kind::none;
  std::atomic<Kind> sync = Kind::none;
};

class FaultFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultFile(std::unique_ptr<rocksdb::FSWritableFile> file, const IndexFaults& faults)
      : FSWritableFileOwnerWrapper(std::move(file)), faults_(&faults) {}

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* context) override {
    rocksdb::IOStatus fault = status_of(faults_->append);
    return fault.ok() ? FSWritableFileOwnerWrapper::Append(data, options, context) : fault;
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& verification,
                           rocksdb::IODebugContext* context) override {
    rocksdb::IOStatus fault = status_of(faults_->append);
    if (!fault.ok()) return fault;
    return FSWritableFileOwnerWrapper::Append(data, options, verification, context);
  }
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* context) override {
    rocksdb::IOStatus fault = status_of(faults_->sync);
    return fault.ok() ? FSWritableFileOwnerWrapper::Sync(options, context) : fault;
  }
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* context) override {
    rocksdb::IOStatus fault = status_of(faults_->sync);
    return fault.ok() ? FSWritableFileOwnerWrapper::Fsync(options, context) : fault;
  }

 private:
  static rocksdb::IOStatus status_of(IndexFaults::Kind kind) {
    if (kind == IndexFaults::Kind::io_error) return rocksdb::IOStatus::IOError("injected");
    if (kind == IndexFaults::Kind::no_space) return rocksdb::IOStatus::NoSpace("injected");
    return rocksdb::IOStatus::OK();
  }
  const IndexFaults* faults_;
};

class FaultFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit FaultFileSystem(const IndexFaults& faults)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), faults_(&faults) {}
  [[nodiscard]] const char* Name() const override { return "FaultFileSystem"; }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* context) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    rocksdb::IOStatus status = target()->NewWritableFile(name, options, &file, context);
    if (status.ok() && name.ends_with(".log")) {
      *result = std::make_unique<FaultFile>(std::move(file), *faults_);
    } else {
      *result = std::move(file);
    }
    return status;
  }

 private:
  const IndexFaults* faults_;
};

inline std::unique_ptr<rocksdb::Env> make_fault_environment(const IndexFaults& faults) {
  return rocksdb::NewCompositeEnv(std::make_shared<FaultFileSystem>(faults));
}

}  // namespace kv
