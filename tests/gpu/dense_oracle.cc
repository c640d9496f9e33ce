#include "tests/gpu/dense_oracle.h"

#include <algorithm>
#include <array>

#include <cublas_v2.h>
#include <dlfcn.h>

namespace kv::gpu {

namespace {

// Named in full: cuBLAS overloads them.
using Product = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int,
                                   int, const void*, const void*, cudaDataType, int, const void*,
                                   cudaDataType, int, const void*, void*, cudaDataType, int,
                                   cublasComputeType_t, cublasGemmAlgo_t);
using StridedBatched = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                          int, int, const void*, const void*, cudaDataType, int,
                                          long long, const void*, cudaDataType, int, long long,
                                          const void*, void*, cudaDataType, int, long long, int,
                                          cublasComputeType_t, cublasGemmAlgo_t);

}  // namespace

struct DenseOracle::Library {
  void* handle = nullptr;
  cublasHandle_t cublas = nullptr;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  StridedBatched strided_batched = nullptr;
  Product product = nullptr;
};

namespace {

template <class Function>
bool find(void* handle, const char* name, Function& to) {
  to = reinterpret_cast<Function>(dlsym(handle, name));
  return to != nullptr;
}

// One decode: scores and outputs of every head of one sequence, dense.
struct Dense {
  std::vector<float> query;         // [query head][dim]
  std::vector<std::uint16_t> k, v;  // bf16 [kv head][token][dim]
  std::uint32_t length = 0;
};

std::uint16_t bf16_of(float value) {
  return static_cast<std::uint16_t>(encode(double{value}, KV_KERNEL_DTYPE_BF16));
}

Dense gather(const Shape& shape, const Pool& pool, const Sequence& sequence, const Batch& batch,
             std::size_t first_query) {
  Dense dense;
  dense.length = sequence.length;
  for (std::size_t i = 0; i < std::size_t{shape.query_heads} * shape.dim; ++i) {
    dense.query.push_back(
        static_cast<float>(decode(batch.query_bits[first_query + i], shape.query_dtype)));
  }
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    for (std::uint32_t t = 0; t < sequence.length; ++t) {
      const std::uint32_t slot = sequence.table[t / shape.block_tokens];
      for (unsigned plane = 0; plane < 2; ++plane) {
        const std::size_t at = pool.offset(slot, 0, plane, head, t % shape.block_tokens);
        auto& to = plane == 0 ? dense.k : dense.v;
        for (std::uint32_t c = 0; c < shape.dim; ++c) {
          std::uint16_t bits = 0;
          std::memcpy(&bits, const_cast<Pool&>(pool).bytes().data() + at + c * 2UL, 2);
          to.push_back(bits);
        }
      }
    }
  }
  return dense;
}

// Row-wise softmax in double on the host, rounded to bf16 for the second product.
std::vector<std::uint16_t> softmax(const std::vector<float>& scores, std::uint32_t rows,
                                   std::uint32_t length) {
  std::vector<std::uint16_t> weights(scores.size());
  for (std::uint32_t r = 0; r < rows; ++r) {
    const float* row = scores.data() + std::size_t{r} * length;
    const double max = double{*std::max_element(row, row + length)};
    double total = 0;
    for (std::uint32_t t = 0; t < length; ++t) total += std::exp(double{row[t]} - max);
    for (std::uint32_t t = 0; t < length; ++t) {
      weights[std::size_t{r} * length + t] =
          bf16_of(static_cast<float>(std::exp(double{row[t]} - max) / total));
    }
  }
  return weights;
}

}  // namespace

DenseOracle::DenseOracle(std::unique_ptr<Library> library) : library_(std::move(library)) {}

DenseOracle::~DenseOracle() {
  library_->destroy(library_->cublas);
  dlclose(library_->handle);
}

std::unique_ptr<DenseOracle> DenseOracle::open(std::string& reason) {
  auto library = std::make_unique<Library>();
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library->handle != nullptr) break;
    reason = dlerror();
  }
  if (library->handle == nullptr) return nullptr;
  const bool found =
      find(library->handle, "cublasCreate_v2", library->create) &&
      find(library->handle, "cublasDestroy_v2", library->destroy) &&
      find(library->handle, "cublasGemmStridedBatchedEx", library->strided_batched) &&
      find(library->handle, "cublasGemmEx", library->product);
  if (!found || library->create(&library->cublas) != CUBLAS_STATUS_SUCCESS) {
    reason = found ? "cublasCreate failed" : "a function is missing";
    return nullptr;
  }
  return std::unique_ptr<DenseOracle>(new DenseOracle(std::move(library)));
}

void DenseOracle::compare_decode(Context& context) {
  const Shape shape{.query_heads = 16, .kv_heads = 4, .dim = 128};
  std::vector<Sequence> sequences{{context.seed() + 1, {}, 3000, 1},
                                  {context.seed() + 2, {}, 777, 1}};
  context.at("cuBLAS " + text_of(shape));
  const auto pool = pool_of(context.device(), shape, sequences, context.seed());
  const Batch batch(context, shape, sequences);
  const Attended got = attend(context, shape, *pool, batch, 0);
  const std::uint32_t ratio = shape.query_heads / shape.kv_heads;
  const std::size_t per_row = std::size_t{shape.query_heads} * shape.dim;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const Dense dense = gather(shape, *pool, sequences[s], batch, s * per_row);
    const auto length = static_cast<int>(dense.length);
    const auto dim = static_cast<int>(shape.dim);
    const auto heads = static_cast<int>(ratio);
    std::vector<std::uint16_t> query(dense.query.size());
    // A bf16 product takes the query in two parts, so that little of it is lost.
    std::vector<std::uint16_t> rest(dense.query.size());
    for (std::size_t i = 0; i < query.size(); ++i) {
      query[i] = bf16_of(dense.query[i]);
      const double kept = decode(query[i], KV_KERNEL_DTYPE_BF16);
      rest[i] = bf16_of(static_cast<float>(double{dense.query[i]} - kept));
    }
    Buffer<std::uint16_t> q(context.device(), query), q_rest(context.device(), rest);
    Buffer<std::uint16_t> k(context.device(), dense.k), v(context.device(), dense.v);
    Buffer<float> scores(context.device(), std::size_t{shape.query_heads} * dense.length);
    Buffer<float> out(context.device(), per_row);
    const float scale = problem_of(shape, KV_KERNEL_OP_DECODE).scale, zero = 0, one = 1;
    const auto multiply = [&](const Buffer<std::uint16_t>& part, const float& keep) {
      return library_->strided_batched(
          library_->cublas, CUBLAS_OP_T, CUBLAS_OP_N, length, heads, dim, &scale, k.data(),
          CUDA_R_16BF, dim, std::int64_t{length} * dim, part.data(), CUDA_R_16BF, dim,
          std::int64_t{heads} * dim, &keep, scores.data(), CUDA_R_32F, length,
          std::int64_t{heads} * length, static_cast<int>(shape.kv_heads), CUBLAS_COMPUTE_32F,
          CUBLAS_GEMM_DEFAULT);
    };
    context.expect(multiply(q, zero) == CUBLAS_STATUS_SUCCESS, "scores");
    context.expect(multiply(q_rest, one) == CUBLAS_STATUS_SUCCESS, "scores, second part");
    const Buffer<std::uint16_t> weights(context.device(),
                                        softmax(scores.get(), shape.query_heads, dense.length));
    const auto status = library_->strided_batched(
        library_->cublas, CUBLAS_OP_N, CUBLAS_OP_N, dim, heads, length, &one, v.data(), CUDA_R_16BF,
        dim, std::int64_t{length} * dim, weights.data(), CUDA_R_16BF, length,
        std::int64_t{heads} * length, &zero, out.data(), CUDA_R_32F, dim, std::int64_t{heads} * dim,
        static_cast<int>(shape.kv_heads), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    context.expect(status == CUBLAS_STATUS_SUCCESS, "outputs");
    const std::vector<float> want = out.get();
    for (std::size_t i = 0; i < per_row; ++i) {
      const double value =
          decode(load(got.output.data() + (s * per_row + i) * 4, KV_KERNEL_DTYPE_F32),
                 KV_KERNEL_DTYPE_F32);
      // The oracle's weights are bf16: 2^-9 of each, averaged over thousands of keys.
      context.expect_near(value, double{want[i]}, 5e-4, "output");
    }
  }
}

void DenseOracle::compare_row_tiles(Context& context) {
  constexpr int kTile = 8, kRows = 64, kInner = 1024, kColumns = 512;
  context.at("row tiles");
  Prng prng(context.seed());
  std::vector<std::uint16_t> a(std::size_t{kRows} * kInner), b(std::size_t{kInner} * kColumns);
  for (auto& x : a) x = static_cast<std::uint16_t>(random_bits(prng, KV_KERNEL_DTYPE_BF16));
  for (auto& x : b) x = static_cast<std::uint16_t>(random_bits(prng, KV_KERNEL_DTYPE_BF16));
  const Buffer<std::uint16_t> a_there(context.device(), a), b_there(context.device(), b);
  // Row-major rows x columns by column-major columns x rows.
  const auto rows_of = [&](int first, int rows) {
    Buffer<float> c(context.device(), std::size_t{kColumns} * static_cast<std::size_t>(rows));
    const float one = 1, zero = 0;
    const auto status = library_->product(
        library_->cublas, CUBLAS_OP_N, CUBLAS_OP_N, kColumns, rows, kInner, &one, b_there.data(),
        CUDA_R_16BF, kColumns, a_there.data() + std::ptrdiff_t{first} * kInner, CUDA_R_16BF, kInner,
        &zero, c.data(), CUDA_R_32F, kColumns, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    context.expect(status == CUBLAS_STATUS_SUCCESS, "product");
    return c.get();
  };
  // Each row alone in a tile position of its own, against the tiles of a full batch.
  for (int first = 0; first < kRows; first += kTile) {
    const std::vector<float> tile = rows_of(first, kTile);
    const std::vector<float> again = rows_of(first, kTile);
    context.expect(std::memcmp(tile.data(), again.data(), tile.size() * 4) == 0, "again");
    if (first + kTile + 3 > kRows) continue;
    const std::vector<float> moved = rows_of(first + 3, kTile);  // the same rows, other places
    const std::size_t shared = std::size_t{kTile - 3} * kColumns;
    context.expect(std::memcmp(tile.data() + 3UL * kColumns, moved.data(), shared * 4) == 0,
                   "a row depends on its place in the tile");
  }
}

}  // namespace kv::gpu
