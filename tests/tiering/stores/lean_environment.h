// A RocksDB environment that reserves no room ahead: on a file system in memory the 35 MiB that an
// index reserves for its log would be most of the work of a test that opens a store a thousand
// times.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/io_status.h>

namespace kv {

class LeanFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  explicit LeanFile(std::unique_ptr<rocksdb::FSWritableFile> file)
      : FSWritableFileOwnerWrapper(std::move(file)) {}
  rocksdb::IOStatus Allocate(uint64_t /*offset*/, uint64_t /*length*/,
                             const rocksdb::IOOptions& /*options*/,
                             rocksdb::IODebugContext* /*context*/) override {
    return rocksdb::IOStatus::OK();
  }
  void PrepareWrite(size_t /*offset*/, size_t /*length*/, const rocksdb::IOOptions& /*options*/,
                    rocksdb::IODebugContext* /*context*/) override {}
};

class LeanFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  LeanFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  [[nodiscard]] const char* Name() const override { return "LeanFileSystem"; }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* context) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    rocksdb::IOStatus status = target()->NewWritableFile(name, options, &file, context);
    if (status.ok()) *result = std::make_unique<LeanFile>(std::move(file));
    return status;
  }
};

inline std::unique_ptr<rocksdb::Env> make_lean_environment() {
  return rocksdb::NewCompositeEnv(std::make_shared<LeanFileSystem>());
}

}  // namespace kv
