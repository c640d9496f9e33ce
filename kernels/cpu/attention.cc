// Attention of query rows over the paged pool, causal, with grouped-query heads: decode and extend
// are the same code, a row at a time. First the reference, then the implementation.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/api/page_view.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/operations.h"

namespace kv::kernels {

void attention_reference(const kv_kernel_problem& problem, const kv_kernel_pool& pool,
                         const kv_kernel_batch& batch, std::uint32_t layer, const float* query,
                         double* output, double* lse) {
  const PageView view(pool);
  const std::uint32_t ratio = problem.query_head_count / problem.kv_head_count;
  for (std::uint32_t s = 0; s < batch.sequence_count; ++s) {
    const std::uint32_t* table = batch.table + std::size_t{s} * batch.table_stride;
    const std::uint32_t rows = batch.row_start[s + 1] - batch.row_start[s];
    for (std::uint32_t r = 0; r < rows * problem.query_head_count; ++r) {
      const std::uint32_t head = r % problem.query_head_count;
      const std::size_t index = std::size_t{batch.row_start[s]} * problem.query_head_count + r;
      const std::uint32_t visible = batch.kv_length[s] - rows + r / problem.query_head_count + 1;
      const auto page = [&](std::uint32_t t) {
        return PageIndex{.slot = table[t / problem.block_tokens],
                         .layer = layer,
                         .head = head / ratio,
                         .token = t % problem.block_tokens};
      };
      std::vector<double> scores(visible);
      for (std::uint32_t t = 0; t < visible; ++t) {
        const auto* k = reinterpret_cast<const float*>(view.k(page(t)));
        double sum = 0;
        for (std::uint32_t i = 0; i < problem.head_dim_qk; ++i) {
          sum += double{query[index * problem.head_dim_qk + i]} * double{k[i]};
        }
        scores[t] = sum * double{problem.scale};
      }
      const double max = *std::ranges::max_element(scores);
      double total = 0;
      std::vector<double> out(problem.head_dim_vo, 0.0);
      for (std::uint32_t t = 0; t < visible; ++t) {
        const auto* v = reinterpret_cast<const float*>(view.v(page(t)));
        const double weight = std::exp(scores[t] - max);
        total += weight;
        for (std::uint32_t i = 0; i < problem.head_dim_vo; ++i) out[i] += weight * double{v[i]};
      }
      for (std::uint32_t i = 0; i < problem.head_dim_vo; ++i) {
        output[index * problem.head_dim_vo + i] = out[i] / total;
      }
      lse[index] = max + std::log(total);
    }
  }
}

namespace {

// Softmax state over some of the keys, not yet divided by `sum`.
struct Partial {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::array<float, kHeadDimMax> out{};
};

struct Job {
  const kv_kernel_problem& problem;
  const kv_kernel_batch& batch;
  const kv_kernel_tensors& tensors;
  PageView view;
};

// Where a row's keys are: one row, one key-value head.
struct Keys {
  const std::uint32_t* table;
  std::uint32_t kv_head;
};

Partial attend_split(const Job& job, const Keys& keys, const float* query, std::uint32_t begin,
                     std::uint32_t end) {
  const kv_kernel_problem& problem = job.problem;
  const auto page = [&](std::uint32_t t) {
    return PageIndex{.slot = keys.table[t / problem.block_tokens],
                     .layer = job.tensors.layer,
                     .head = keys.kv_head,
                     .token = t % problem.block_tokens};
  };
  Partial partial;
  std::array<float, kSplitTokens> weights;  // written before it is read, up to end - begin
  for (std::uint32_t t = begin; t < end; ++t) {
    const auto* k = reinterpret_cast<const float*>(job.view.k(page(t)));
    const float score = dot(query, k, problem.head_dim_qk) * problem.scale;
    weights[t - begin] = score;
    partial.max = std::max(partial.max, score);
  }
  for (std::uint32_t t = begin; t < end; ++t) {
    const auto* v = reinterpret_cast<const float*>(job.view.v(page(t)));
    const float weight = std::exp(weights[t - begin] - partial.max);
    partial.sum += weight;
    add_scaled(partial.out.data(), weight, v, problem.head_dim_vo);
  }
  return partial;
}

// requires: `later` holds the keys right after those of `into`.
void merge_split(Partial& into, const Partial& later, std::uint32_t count) {
  const float max = std::max(into.max, later.max);
  const float into_factor = std::exp(into.max - max);
  const float later_factor = std::exp(later.max - max);
  for (std::uint32_t i = 0; i < count; ++i) {
    into.out[i] = into.out[i] * into_factor + later.out[i] * later_factor;
  }
  into.sum = into.sum * into_factor + later.sum * later_factor;
  into.max = max;
}

void attend_row(const Job& job, const Keys& keys, std::uint32_t visible, std::size_t row_head) {
  const kv_kernel_problem& problem = job.problem;
  const auto* query = static_cast<const float*>(job.tensors.query) + row_head * problem.head_dim_qk;
  Partial all = attend_split(job, keys, query, 0, std::min(visible, kSplitTokens));
  for (std::uint32_t begin = kSplitTokens; begin < visible; begin += kSplitTokens) {
    const std::uint32_t end = std::min(visible, begin + kSplitTokens);
    merge_split(all, attend_split(job, keys, query, begin, end), problem.head_dim_vo);
  }
  auto* output = static_cast<float*>(job.tensors.output) + row_head * problem.head_dim_vo;
  for (std::uint32_t i = 0; i < problem.head_dim_vo; ++i) output[i] = all.out[i] / all.sum;
  if (job.tensors.lse != nullptr) job.tensors.lse[row_head] = all.max + std::log(all.sum);
}

// All query heads of one sequence's rows that share key-value head `index % kv_head_count`.
void attend_sequence_head(void* argument, std::uint32_t index) {
  const Job& job = *static_cast<const Job*>(argument);
  const kv_kernel_problem& problem = job.problem;
  const std::uint32_t sequence = index / problem.kv_head_count;
  const std::uint32_t kv_head = index % problem.kv_head_count;
  const std::uint32_t ratio = problem.query_head_count / problem.kv_head_count;
  const std::uint32_t row_begin = job.batch.row_start[sequence];
  const std::uint32_t row_end = job.batch.row_start[sequence + 1];
  const std::uint32_t before = job.batch.kv_length[sequence] - (row_end - row_begin);
  const Keys keys{job.batch.table + std::size_t{sequence} * job.batch.table_stride, kv_head};
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    for (std::uint32_t head = kv_head * ratio; head < (kv_head + 1) * ratio; ++head) {
      attend_row(job, keys, before + (row - row_begin) + 1,
                 std::size_t{row} * problem.query_head_count + head);
    }
  }
}

bool tables_fit(const kv_kernel_problem& problem, const kv_kernel_pool& pool,
                const kv_kernel_batch& batch) {
  for (std::uint32_t s = 0; s < batch.sequence_count; ++s) {
    const std::uint32_t blocks =
        (batch.kv_length[s] + problem.block_tokens - 1) / problem.block_tokens;
    const std::uint32_t* table = batch.table + std::size_t{s} * batch.table_stride;
    if (std::any_of(table, table + blocks,
                    [&](std::uint32_t slot) { return slot >= pool.slot_count; })) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::int32_t attention(const kv_kernel_problem& problem, const kv_kernel_plan& plan,
                       const kv_kernel_pool& pool, const kv_kernel_batch& batch,
                       const kv_kernel_tensors& tensors, const kv_kernel_host* host) {
  const bool planned = plan.word_count == 2 && plan.words[0] == batch.sequence_count &&
                       plan.words[1] == batch.row_count;
  if (!planned || tensors.layer >= problem.layer_count || !tables_fit(problem, pool, batch)) {
    return KV_KERNEL_INVALID;
  }
  Job job{problem, batch, tensors, PageView(pool)};
  const std::uint32_t count = batch.sequence_count * problem.kv_head_count;
  if (host != nullptr && host->parallel_for != nullptr) {
    host->parallel_for(host->context, count, attend_sequence_head, &job);
  } else {
    for (std::uint32_t i = 0; i < count; ++i) attend_sequence_head(&job, i);
  }
  return KV_KERNEL_OK;
}

}  // namespace kv::kernels
