// Dense attention by cuBLAS on gathered keys and values: an oracle that shares nothing with the
// kernels but the pool's bytes; and the rule of fixed row tiles. cuBLAS is opened at run time.
// Owner: of the library's handle. Threads: one. Cost: O(rows x length x dimension) on the device.
#pragma once

#include <memory>
#include <string>

#include "tests/gpu/cases.h"
#include "tests/gpu/cuda_device.h"

namespace kv::gpu {

class DenseOracle {
 public:
  // Null, with the reason, where there is no cuBLAS.
  static std::unique_ptr<DenseOracle> open(std::string& reason);
  DenseOracle(const DenseOracle&) = delete;
  DenseOracle& operator=(const DenseOracle&) = delete;
  DenseOracle(DenseOracle&&) = delete;
  DenseOracle& operator=(DenseOracle&&) = delete;
  ~DenseOracle();
  // Decode of paged bf16 batches against strided-batched products over the same keys.
  void compare_decode(Context& context);
  // A row of a product has the same bits for every number of rows, computed in tiles of eight.
  void compare_row_tiles(Context& context);

 private:
  struct Library;
  explicit DenseOracle(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace kv::gpu
