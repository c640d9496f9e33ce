// Where tests put faults between a disk store and the system. Production code passes none.
#pragma once

#include <functional>
#include <memory>

#include "tiering/stores/file_io.h"

namespace rocksdb {
class Env;
}

namespace kv {

struct DiskStoreSeams {
  std::function<std::unique_ptr<FileIo>(std::unique_ptr<FileIo>)> wrap_io;  // slab files
  rocksdb::Env* index_environment = nullptr;                                // outlives the store
};

}  // namespace kv
