// Copies of blocks within a pool and between pools: finds the longest runs of bytes that are
// contiguous on both sides, then launches.
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/operations.h"

namespace kv::cuda {
namespace {

struct Side {
  const kv_kernel_plane* plane;
  char* base;  // of the first layer copied
};

bool aligned(const Side& side) {
  return reinterpret_cast<std::uintptr_t>(side.base) % kAlignment == 0 &&
         side.plane->block_stride % kAlignment == 0 && side.plane->layer_stride % kAlignment == 0 &&
         side.plane->head_stride % kAlignment == 0 && side.plane->token_stride % kAlignment == 0;
}

// Appends a dimension, or lengthens the run when it continues it on both sides.
void add_dim(CopyArguments& a, unsigned& used, const CopyDim& dim) {
  const std::int64_t run = std::int64_t{a.run_vectors} * kAlignment;
  if (used == 0 && dim.from_stride == run && dim.to_stride == run) {
    if (dim.tokens) a.token_vectors = a.run_vectors;
    a.run_vectors *= dim.count;
  } else {
    a.dims[used] = dim;
    ++used;
  }
  a.vectors *= dim.count;
}

CopyArguments region_of(const kv_kernel_problem& problem, std::uint32_t row_bytes,
                        std::uint32_t layers, const Side& from, const Side& to) {
  CopyArguments a{};
  a.from = from.base;
  a.to = to.base;
  a.from_block_stride = from.plane->block_stride;
  a.to_block_stride = to.plane->block_stride;
  a.block_tokens = problem.block_tokens;
  a.run_vectors = a.vectors = row_bytes / kAlignment;
  a.token_vectors = 0xFFFFFFFFU;
  for (CopyDim& dim : a.dims) dim = {1, 0, 0, false};
  const CopyDim tokens{problem.block_tokens, from.plane->token_stride, to.plane->token_stride,
                       true};
  const CopyDim heads{problem.kv_head_count, from.plane->head_stride, to.plane->head_stride, false};
  unsigned used = 0;
  const bool heads_inside = heads.from_stride == row_bytes && heads.to_stride == row_bytes &&
                            tokens.from_stride != row_bytes;
  add_dim(a, used, heads_inside ? heads : tokens);
  add_dim(a, used, heads_inside ? tokens : heads);
  add_dim(a, used, {layers, from.plane->layer_stride, to.plane->layer_stride, false});
  return a;
}

struct Pools {
  const kv_kernel_problem& problem;
  const kv_kernel_pool& from;
  const kv_kernel_pool& to;
  const kv_kernel_copy& copy;
  Stream stream;
};

int launch_region(const Pools& pools, CopyArguments a) {
  a.from_slots = pools.copy.from;
  a.to_slots = pools.copy.to;
  a.token_count = pools.copy.token_count;
  a.from_slot_count = pools.from.slot_count;
  a.to_slot_count = pools.to.slot_count;
  return launch_copy(a, pools.copy.block_count, pools.stream);
}

char* layer_base(const kv_kernel_plane& plane, std::uint32_t layer) {
  return plane.layer_bases == nullptr ? static_cast<char*>(plane.base) + layer * plane.layer_stride
                                      : static_cast<char*>(plane.layer_bases[layer]);
}

// Keys, values and layers of a whole block that lie in one run on both sides.
bool join_planes(CopyArguments& k, const CopyArguments& v, std::uint32_t layers) {
  const std::int64_t bytes = std::int64_t{k.run_vectors} * kAlignment;
  const bool neighbours = v.from == k.from + bytes && v.to == k.to + bytes &&
                          v.from_block_stride == k.from_block_stride &&
                          v.to_block_stride == k.to_block_stride;
  if (!neighbours) return false;
  const std::int64_t both = bytes + std::int64_t{v.run_vectors} * kAlignment;
  const bool one_layer = layers == 1 && k.run_vectors == k.vectors && v.run_vectors == v.vectors;
  // The layers are the only dimension that is left.
  const auto only_layers = [&](const CopyArguments& a) {
    return a.run_vectors * layers == a.vectors && a.dims[0].count == layers &&
           a.dims[0].from_stride == both && a.dims[0].to_stride == both;
  };
  if (!one_layer && !(only_layers(k) && only_layers(v))) return false;
  k.vectors = k.run_vectors = static_cast<std::uint32_t>(both / kAlignment) * layers;
  for (CopyDim& dim : k.dims) dim = {1, 0, 0, false};
  return true;
}

int copy_layers(const Pools& pools, std::uint32_t layer, std::uint32_t layers, bool& valid) {
  const kv_kernel_problem& p = pools.problem;
  const std::uint32_t k_bytes = p.head_dim_qk * bytes_of_dtype(p.k_dtype);
  const std::uint32_t v_bytes = p.head_dim_vo * bytes_of_dtype(p.v_dtype);
  const Side from_k{&pools.from.k, layer_base(pools.from.k, layer)};
  const Side from_v{&pools.from.v, layer_base(pools.from.v, layer)};
  const Side to_k{&pools.to.k, layer_base(pools.to.k, layer)};
  const Side to_v{&pools.to.v, layer_base(pools.to.v, layer)};
  valid = aligned(from_k) && aligned(from_v) && aligned(to_k) && aligned(to_v) &&
          k_bytes % kAlignment == 0 && v_bytes % kAlignment == 0;
  if (!valid) return 0;
  CopyArguments k = region_of(p, k_bytes, layers, from_k, to_k);
  const CopyArguments v = region_of(p, v_bytes, layers, from_v, to_v);
  if (pools.copy.token_count == nullptr && join_planes(k, v, layers)) {
    return launch_region(pools, k);
  }
  const int error = launch_region(pools, k);
  return error != 0 ? error : launch_region(pools, v);
}

std::int32_t copy_pools(const Pools& pools) {
  if (pools.copy.block_count == 0) return KV_KERNEL_OK;
  const bool own_bases = pools.from.k.layer_bases != nullptr ||
                         pools.from.v.layer_bases != nullptr || pools.to.k.layer_bases != nullptr ||
                         pools.to.v.layer_bases != nullptr;
  const std::uint32_t layers = own_bases ? 1 : pools.problem.layer_count;
  int error = 0;
  bool valid = true;
  for (std::uint32_t layer = 0; layer < pools.problem.layer_count && error == 0 && valid;
       layer += layers) {
    error = copy_layers(pools, layer, layers, valid);
  }
  return valid ? result_of(error, "copy_blocks") : KV_KERNEL_INVALID;
}

}  // namespace

std::int32_t copy_blocks(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                         const kv_kernel_copy* copy, void* stream) {
  return copy_pools({*problem, *pool, *pool, *copy, stream});
}

std::int32_t transcode(const kv_kernel_problem* from_problem, const kv_kernel_pool* from,
                       const kv_kernel_problem* to_problem, const kv_kernel_pool* to,
                       const kv_kernel_copy* copy, void* stream) {
  const bool same_shape = from_problem->layer_count == to_problem->layer_count &&
                          from_problem->kv_head_count == to_problem->kv_head_count &&
                          from_problem->head_dim_qk == to_problem->head_dim_qk &&
                          from_problem->head_dim_vo == to_problem->head_dim_vo &&
                          from_problem->block_tokens == to_problem->block_tokens;
  if (!same_shape) return KV_KERNEL_INVALID;
  if (from_problem->k_dtype == to_problem->k_dtype &&
      from_problem->v_dtype == to_problem->v_dtype) {
    return copy_pools({*from_problem, *from, *to, *copy, stream});
  }
  return KV_KERNEL_UNSUPPORTED;
}

}  // namespace kv::cuda
