#include "plugins/runner/decoder.h"

#include <algorithm>
#include <cmath>

namespace kv::runner {
namespace {

kv_kernel_problem problem_of(const ModelConfig& config, std::uint32_t block_tokens) {
  kv_kernel_problem problem{};
  problem.struct_size = sizeof(problem);
  problem.operation = KV_KERNEL_OP_EXTEND;
  problem.layer_count = config.layer_count;
  problem.query_head_count = config.head_count;
  problem.kv_head_count = config.kv_head_count;
  problem.head_dim_qk = config.head_dim();
  problem.head_dim_vo = config.head_dim();
  problem.k_dtype = KV_KERNEL_DTYPE_F32;
  problem.v_dtype = KV_KERNEL_DTYPE_F32;
  problem.query_dtype = KV_KERNEL_DTYPE_F32;
  problem.output_dtype = KV_KERNEL_DTYPE_F32;
  problem.block_tokens = block_tokens;
  problem.scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim()));
  return problem;
}

// The pool's numbers come from the service: checked against the mapped memory.
Result<kv_kernel_pool> view_of(const KvLayout& layout, const client::Pool& pool) {
  if (pool.groups.size() != 1) {
    return Error{ErrorCode::mismatch, "pool: other layer groups than the model's", "groups"};
  }
  const client::Pool::Group& group = pool.groups.front();
  const BlockStrides strides = block_strides(layout, GroupId(0));
  const std::uint64_t memory = pool.memory.size();
  if (group.slot_bytes < block_bytes(layout, GroupId(0)) || group.slot_bytes % sizeof(float) != 0 ||
      group.offset % sizeof(float) != 0) {
    return Error{ErrorCode::mismatch, "pool: slots are too small or not aligned", "slot_bytes"};
  }
  if (group.offset > memory || group.slot_count > (memory - group.offset) / group.slot_bytes) {
    return Error{ErrorCode::mismatch, "pool: slots lie outside the mapped memory", "slot_count"};
  }
  kv_kernel_pool view{};
  view.struct_size = sizeof(view);
  view.slot_count = group.slot_count;
  view.k.base = pool.memory.data() + group.offset;
  view.v.base = pool.memory.data() + group.offset + strides.v_offset;
  for (kv_kernel_plane* plane : {&view.k, &view.v}) {
    plane->block_stride = static_cast<std::int64_t>(group.slot_bytes);
    plane->layer_stride = strides.layer;
  }
  view.k.head_stride = strides.k_head;
  view.k.token_stride = strides.k_token;
  view.v.head_stride = strides.v_head;
  view.v.token_stride = strides.v_token;
  return view;
}

Error kernel_refused() { return {ErrorCode::invalid, "decoder: the kernel refused the batch", {}}; }

}  // namespace

Result<Decoder> Decoder::make(const Model& model, const kv_kernel& kernel, GemmBackend backend,
                              const KvLayout& layout, const client::Pool& pool) {
  KV_TRY(const kv_kernel_pool view, view_of(layout, pool));
  kv_kernel_problem problem = problem_of(model.config(), layout.block_tokens);
  for (const std::uint32_t operation : {KV_KERNEL_OP_EXTEND, KV_KERNEL_OP_APPEND}) {
    problem.operation = operation;
    if (kernel.supports(&problem, nullptr, 0) != KV_KERNEL_OK) {
      return Error{ErrorCode::unsupported, "decoder: the kernel cannot run this model", {}};
    }
  }
  return Decoder(model, kernel, backend, layout, view);
}

Decoder::Decoder(const Model& model, const kv_kernel& kernel, GemmBackend backend,
                 const KvLayout& layout, const kv_kernel_pool& pool)
    : model_(&model),
      kernel_(&kernel),
      linear_(backend),
      rope_(model.config().head_dim(), model.config().context_length, ModelConfig::kRopeTheta),
      block_tokens_(layout.block_tokens),
      pool_(pool),
      problem_(problem_of(model.config(), layout.block_tokens)) {}

Result<void> Decoder::check(std::span<const DecoderRows> batch) const {
  const ModelConfig& config = model_->config();
  for (const DecoderRows& rows : batch) {
    const std::uint64_t length = std::uint64_t{rows.position} + rows.tokens.size();
    if (rows.tokens.empty() || length > config.context_length) {
      return Error{ErrorCode::invalid, "decoder: positions beyond the model's context", "position"};
    }
    if (length > rows.table.size() * block_tokens_) {
      return Error{ErrorCode::invalid, "decoder: the block table is too short", "table"};
    }
    const std::size_t blocks = (length + block_tokens_ - 1) / block_tokens_;
    if (std::ranges::any_of(rows.table.first(blocks),
                            [&](SlotId slot) { return slot.value >= pool_.slot_count; })) {
      return Error{ErrorCode::invalid, "decoder: a slot outside the pool", "table"};
    }
    if (std::ranges::any_of(rows.tokens, [&](Token token) { return token >= config.vocab_size; })) {
      return Error{ErrorCode::invalid, "decoder: a token outside the vocabulary", "tokens"};
    }
  }
  return {};
}

// Lays out the batch: rows, positions, places in the pool, tables for the kernel.
Result<void> Decoder::place(std::span<const DecoderRows> batch) {
  row_start_.assign(1, 0);
  kv_length_.clear();
  position_.clear();
  place_.clear();
  std::size_t stride = 1;
  for (const DecoderRows& rows : batch) stride = std::max(stride, rows.table.size());
  table_.assign(stride * batch.size(), 0);
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const DecoderRows& rows = batch[s];
    for (std::size_t i = 0; i < rows.table.size(); ++i) {
      table_[s * stride + i] = rows.table[i].value;
    }
    for (std::uint32_t i = 0; i < rows.tokens.size(); ++i) {
      const std::uint32_t position = rows.position + i;
      position_.push_back(position);
      place_.push_back(std::int64_t{rows.table[position / block_tokens_].value} * block_tokens_ +
                       position % block_tokens_);
    }
    row_start_.push_back(static_cast<std::uint32_t>(position_.size()));
    kv_length_.push_back(position_.back() + 1);
  }
  row_count_ = row_start_.back();
  batch_ = {.struct_size = sizeof(batch_),
            .sequence_count = static_cast<std::uint32_t>(batch.size()),
            .row_count = row_count_,
            .table_stride = static_cast<std::uint32_t>(stride),
            .row_start = row_start_.data(),
            .kv_length = kv_length_.data(),
            .table = table_.data()};
  plan_.struct_size = sizeof(plan_);
  if (kernel_->prepare(&problem_, &batch_, &plan_) != KV_KERNEL_OK) return kernel_refused();
  return {};
}

void Decoder::multiply(const std::vector<float>& x, const float* weights, const MatrixShape& shape,
                       std::vector<float>& y) {
  y.resize(std::size_t{row_count_} * shape.outputs);
  linear_.apply(x, row_count_, weights, shape, y);
}

void Decoder::normalize(const float* weight) {
  const std::size_t dim = model_->config().dim;
  normal_.resize(row_count_ * dim);
  for (std::size_t row = 0; row < row_count_; ++row) {
    rms_norm(std::span(x_).subspan(row * dim, dim), weight, ModelConfig::kRmsEpsilon,
             normal_.data() + row * dim);
  }
}

Result<void> Decoder::attend(std::uint32_t layer) {
  const ModelConfig& config = model_->config();
  const LayerWeights& weights = model_->layer(layer);
  normalize(weights.rms_attention);
  multiply(normal_, weights.wq, {config.dim, config.dim}, query_);
  multiply(normal_, weights.wk, {config.dim, config.kv_dim()}, key_);
  multiply(normal_, weights.wv, {config.dim, config.kv_dim()}, value_);
  for (std::size_t row = 0; row < row_count_; ++row) {
    rope_.apply(std::span(query_).subspan(row * config.dim, config.dim), position_[row]);
    rope_.apply(std::span(key_).subspan(row * config.kv_dim(), config.kv_dim()), position_[row]);
  }
  const kv_kernel_append append{sizeof(append), layer,         row_count_,
                                key_.data(),    value_.data(), place_.data()};
  if (kernel_->append_kv(&problem_, &pool_, &append, nullptr) != KV_KERNEL_OK) {
    return kernel_refused();
  }
  attended_.resize(query_.size());
  const kv_kernel_tensors tensors{sizeof(tensors), layer, query_.data(), attended_.data(), nullptr};
  if (kernel_->run(&problem_, &plan_, &pool_, &batch_, &tensors, nullptr, nullptr) !=
      KV_KERNEL_OK) {
    return kernel_refused();
  }
  multiply(attended_, weights.wo, {config.dim, config.dim}, projected_);
  add(x_, projected_.data());
  return {};
}

void Decoder::feed_forward(const LayerWeights& weights) {
  const ModelConfig& config = model_->config();
  normalize(weights.rms_ffn);
  multiply(normal_, weights.gate, {config.dim, config.hidden_dim}, gate_);
  multiply(normal_, weights.up, {config.dim, config.hidden_dim}, up_);
  swiglu(gate_, up_.data());
  multiply(gate_, weights.down, {config.hidden_dim, config.dim}, projected_);
  add(x_, projected_.data());
}

void Decoder::classify(std::span<const DecoderRows> batch, std::vector<float>& logits) {
  const ModelConfig& config = model_->config();
  std::uint32_t wanted = 0;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    if (!batch[s].wants_logits) continue;
    // Wanted rows move to the front; a row never moves back over one still needed.
    const std::uint32_t row = row_start_[s + 1] - 1;
    if (row != wanted) {
      std::copy_n(x_.begin() + std::ptrdiff_t{row} * config.dim, config.dim,
                  x_.begin() + std::ptrdiff_t{wanted} * config.dim);
    }
    ++wanted;
  }
  row_count_ = wanted;
  normalize(model_->rms_final());
  multiply(normal_, model_->classifier(), {config.dim, config.vocab_size}, logits);
}

Result<void> Decoder::forward(std::span<const DecoderRows> batch, std::vector<float>& logits) {
  logits.clear();
  if (batch.empty()) return {};
  KV_TRY_VOID(check(batch));
  KV_TRY_VOID(place(batch));
  const std::size_t dim = model_->config().dim;
  x_.clear();
  for (const DecoderRows& rows : batch) {
    for (const Token token : rows.tokens) {
      const float* row = model_->embedding() + token * dim;
      x_.insert(x_.end(), row, row + dim);
    }
  }
  for (std::uint32_t layer = 0; layer < model_->config().layer_count; ++layer) {
    KV_TRY_VOID(attend(layer));
    feed_forward(model_->layer(layer));
  }
  classify(batch, logits);
  return {};
}

}  // namespace kv::runner
