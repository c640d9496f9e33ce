// Decoder: the forward pass of a Llama-architecture model over a paged pool of keys and values, for
// any mix of sequences at once (continuous batching). A row's result depends on its own sequence
// only. Owner: refers to the model, the kernel and the pool; they outlive it. Threads: one caller
// at a time. Cost: one pass over the weights for each tile of 8 rows, attention over each row's own
// past.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "kernels/api/kv_kernel.h"
#include "plugins/client/session.h"
#include "plugins/runner/linear.h"
#include "plugins/runner/model.h"
#include "plugins/runner/row_math.h"

namespace kv::runner {

// New tokens of one sequence: the first one is at `position`, whose predecessors hold KV already.
struct DecoderRows {
  std::span<const SlotId> table;  // covers position + tokens.size()
  std::uint32_t position = 0;
  std::span<const Token> tokens;
  bool wants_logits = false;  // of the last token
};

class Decoder {
 public:
  // fails: unsupported (the kernel cannot do this model); mismatch (the pool does not fit the
  // layout).
  [[nodiscard]] static Result<Decoder> make(const Model& model, const kv_kernel& kernel,
                                            GemmBackend backend, const KvLayout& layout,
                                            const client::Pool& pool);

  // Computes and stores the KV of all rows; `logits` becomes [sequences that want them][vocab].
  // fails: invalid (a token, position or slot out of range); nothing was computed then.
  [[nodiscard]] Result<void> forward(std::span<const DecoderRows> batch,
                                     std::vector<float>& logits);

 private:
  Decoder(const Model& model, const kv_kernel& kernel, GemmBackend backend, const KvLayout& layout,
          const kv_kernel_pool& pool);
  [[nodiscard]] Result<void> check(std::span<const DecoderRows> batch) const;
  [[nodiscard]] Result<void> place(std::span<const DecoderRows> batch);
  [[nodiscard]] Result<void> attend(std::uint32_t layer);
  void feed_forward(const LayerWeights& weights);
  void normalize(const float* weight);
  void multiply(const std::vector<float>& x, const float* weights, const MatrixShape& shape,
                std::vector<float>& y);
  void classify(std::span<const DecoderRows> batch, std::vector<float>& logits);

  const Model* model_;
  const kv_kernel* kernel_;
  Linear linear_;
  Rope rope_;
  std::uint32_t block_tokens_;
  kv_kernel_pool pool_;
  kv_kernel_problem problem_;

  // Of the forward pass under way.
  std::uint32_t row_count_ = 0;
  std::vector<std::uint32_t> row_start_, kv_length_, table_, position_;
  std::vector<std::int64_t> place_;
  kv_kernel_batch batch_{};
  kv_kernel_plan plan_{};
  std::vector<float> x_, normal_, query_, key_, value_, attended_, projected_, gate_, up_;
};

}  // namespace kv::runner
