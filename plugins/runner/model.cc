#include "plugins/runner/model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "allocator/base/prng.h"
#include "allocator/block_key.h"

namespace kv::runner {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little endian");

constexpr std::size_t kHeaderBytes = 7 * sizeof(std::int32_t);
constexpr std::size_t kAlignment = 64;

struct Limit {
  std::uint32_t ModelConfig::* field;
  std::uint32_t max;
  std::string_view name;
};
constexpr std::array<Limit, 7> kLimits = {
    {{&ModelConfig::dim, 1U << 16U, "dim"},
     {&ModelConfig::hidden_dim, 1U << 18U, "hidden_dim"},
     {&ModelConfig::layer_count, 1U << 10U, "layer_count"},
     {&ModelConfig::head_count, 1U << 10U, "head_count"},
     {&ModelConfig::kv_head_count, 1U << 10U, "kv_head_count"},
     {&ModelConfig::vocab_size, 1U << 20U, "vocab_size"},
     {&ModelConfig::context_length, 1U << 20U, "context_length"}}};

// Floats after the header. The limits above keep every product far below 2^64.
std::size_t float_count(const ModelConfig& c) {
  const std::size_t dim = c.dim;
  const std::size_t layer = 2 * dim + 2 * dim * dim + 2 * dim * c.kv_dim() + 3 * dim * c.hidden_dim;
  const std::size_t tables = std::size_t{c.context_length} * c.head_dim();  // two, of half a head
  const std::size_t classifier = c.shared_classifier ? 0 : std::size_t{c.vocab_size} * dim;
  return c.vocab_size * dim + c.layer_count * layer + dim + tables + classifier;
}

std::string hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest.bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::array<std::int32_t, 7> header_of(const ModelConfig& c) {
  const auto vocab = static_cast<std::int32_t>(c.vocab_size);
  return {static_cast<std::int32_t>(c.dim),           static_cast<std::int32_t>(c.hidden_dim),
          static_cast<std::int32_t>(c.layer_count),   static_cast<std::int32_t>(c.head_count),
          static_cast<std::int32_t>(c.kv_head_count), c.shared_classifier ? vocab : -vocab,
          static_cast<std::int32_t>(c.context_length)};
}

Result<ModelConfig> parse_header(const std::array<std::int32_t, 7>& header) {
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool may_be_negative = i == 5 && header[i] != std::numeric_limits<std::int32_t>::min();
    if (header[i] < 0 && !may_be_negative) {
      return Error{ErrorCode::corrupt, "model file: a negative size in the header", {}};
    }
  }
  const auto value = [&](std::size_t i) { return static_cast<std::uint32_t>(std::abs(header[i])); };
  ModelConfig config{.dim = value(0),
                     .hidden_dim = value(1),
                     .layer_count = value(2),
                     .head_count = value(3),
                     .kv_head_count = value(4),
                     .vocab_size = value(5),
                     .context_length = value(6),
                     .shared_classifier = header[5] > 0};
  if (const auto valid = validate(config); !valid) {
    return Error{ErrorCode::corrupt, "model file: a size in the header is out of range",
                 valid.error().field};
  }
  return config;
}

}  // namespace

Result<void> validate(const ModelConfig& config) {
  for (const Limit& limit : kLimits) {
    if (config.*limit.field == 0 || config.*limit.field > limit.max) {
      return Error{ErrorCode::invalid, "model: a size is zero or absurd", limit.name};
    }
  }
  if (config.dim % config.head_count != 0 || config.head_dim() % 2 != 0) {
    return Error{ErrorCode::invalid, "model: dim is no even multiple of head_count", "head_count"};
  }
  if (config.head_count % config.kv_head_count != 0) {
    return Error{ErrorCode::invalid, "model: head_count is no multiple of kv_head_count",
                 "kv_head_count"};
  }
  return {};
}

// More than the machine has would be granted and then kill the process when it is written.
Model::Buffer Model::allocate(std::size_t floats) {
  const std::size_t bytes = (floats * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  const auto pages = static_cast<std::size_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
  const auto page_bytes = static_cast<std::size_t>(std::max(sysconf(_SC_PAGESIZE), 1L));
  if (bytes / page_bytes >= pages) return nullptr;
  return Buffer(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kAlignment + bytes)));
}

Model::Model(const ModelConfig& config, Buffer buffer, std::size_t floats)
    : config_(config), float_count_(floats), buffer_(std::move(buffer)) {
  place_weights();
}

std::span<std::byte> Model::file() {
  return {buffer_.get() + kAlignment - kHeaderBytes, kHeaderBytes + float_count_ * sizeof(float)};
}

std::span<float> Model::floats() {
  return {reinterpret_cast<float*>(buffer_.get() + kAlignment), float_count_};
}

void Model::place_weights() {
  const std::size_t dim = config_.dim;
  const std::size_t layers = config_.layer_count;
  const float* next = floats().data();
  const auto take = [&](std::size_t floats) {
    const float* here = next;
    next += floats;
    return here;
  };
  embedding_ = take(config_.vocab_size * dim);
  // The file holds each kind of matrix for all layers together.
  const float* rms_attention = take(layers * dim);
  const float* wq = take(layers * dim * dim);
  const float* wk = take(layers * dim * config_.kv_dim());
  const float* wv = take(layers * dim * config_.kv_dim());
  const float* wo = take(layers * dim * dim);
  const float* rms_ffn = take(layers * dim);
  const float* gate = take(layers * dim * config_.hidden_dim);
  const float* down = take(layers * dim * config_.hidden_dim);
  const float* up = take(layers * dim * config_.hidden_dim);
  rms_final_ = take(dim);
  take(std::size_t{config_.context_length} * config_.head_dim());  // rotation tables: made anew
  classifier_ = config_.shared_classifier ? embedding_ : take(config_.vocab_size * dim);
  for (std::size_t l = 0; l < layers; ++l) {
    layers_.push_back({.rms_attention = rms_attention + l * dim,
                       .wq = wq + l * dim * dim,
                       .wk = wk + l * dim * config_.kv_dim(),
                       .wv = wv + l * dim * config_.kv_dim(),
                       .wo = wo + l * dim * dim,
                       .rms_ffn = rms_ffn + l * dim,
                       .gate = gate + l * dim * config_.hidden_dim,
                       .down = down + l * dim * config_.hidden_dim,
                       .up = up + l * dim * config_.hidden_dim});
  }
}

Result<Model> Model::load(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return Error{ErrorCode::not_found, "model file: is no regular file", {}};
  }
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  std::ifstream stream(file, std::ios::binary);
  if (error || !stream) return Error{ErrorCode::not_found, "model file: cannot be read", {}};
  std::array<std::int32_t, 7> header{};
  std::array<std::byte, kHeaderBytes> raw{};
  if (!stream.read(reinterpret_cast<char*>(raw.data()), raw.size())) {
    return Error{ErrorCode::corrupt, "model file: shorter than its header", {}};
  }
  std::memcpy(header.data(), raw.data(), raw.size());
  KV_TRY(const ModelConfig config, parse_header(header));
  const std::size_t floats = float_count(config);
  if (size != kHeaderBytes + floats * sizeof(float)) {
    return Error{ErrorCode::corrupt, "model file: its length does not fit its header", {}};
  }
  Buffer buffer = allocate(floats);
  if (!buffer) return Error{ErrorCode::exhausted, "model file: no memory for its weights", {}};
  Model model(config, std::move(buffer), floats);
  const std::span<std::byte> whole = model.file();
  std::ranges::copy(raw, whole.begin());
  const std::span<std::byte> weights = whole.subspan(kHeaderBytes);
  if (!stream.read(reinterpret_cast<char*>(weights.data()),
                   static_cast<std::streamsize>(weights.size()))) {
    return Error{ErrorCode::corrupt, "model file: ended while it was read", {}};
  }
  if (!std::ranges::all_of(model.floats(), [](float weight) { return std::isfinite(weight); })) {
    return Error{ErrorCode::corrupt, "model file: a weight is no number", {}};
  }
  model.digest_ = hex(sha256(whole));
  return model;
}

Model Model::seeded(const ModelConfig& config, std::uint64_t seed) {
  KV_CHECK(validate(config).has_value());
  const std::size_t float_total = float_count(config);
  Buffer buffer = allocate(float_total);
  KV_CHECK(buffer != nullptr);
  Model model(config, std::move(buffer), float_total);
  Prng prng(seed);
  const float scale = 1.0F / std::sqrt(static_cast<float>(config.dim));
  const auto uniform = [&] {
    return static_cast<float>(prng.below(1U << 24U)) / static_cast<float>(1U << 23U) - 1.0F;
  };
  const std::span<float> floats = model.floats();
  for (float& weight : floats) weight = 2.0F * scale * uniform();
  const auto fill_ones = [&](const float* begin, std::size_t count) {
    std::fill_n(floats.begin() + (begin - floats.data()), count, 1.0F);
  };
  for (const LayerWeights& layer : model.layers_) {
    fill_ones(layer.rms_attention, config.dim);
    fill_ones(layer.rms_ffn, config.dim);
  }
  fill_ones(model.rms_final_, config.dim);
  const auto header = header_of(config);
  std::ranges::copy(std::as_bytes(std::span(header)), model.file().begin());
  model.digest_ = hex(sha256(model.file()));
  return model;
}

KvLayout kv_layout(const ModelConfig& config, std::uint32_t block_tokens) {
  KvLayout layout;
  layout.block_tokens = block_tokens;
  layout.groups.push_back({.kind = AttentionKind::full,
                           .layer_count = config.layer_count,
                           .kv_head_count = config.kv_head_count,
                           .head_dim_k = config.head_dim(),
                           .head_dim_v = config.head_dim(),
                           .k_dtype = DType::f32,
                           .v_dtype = DType::f32});
  return layout;
}

Result<ModelFiles> find_model_files(const std::filesystem::path& folder) {
  std::error_code error;
  ModelFiles files;
  std::filesystem::directory_iterator entry(folder, error);
  if (error) return Error{ErrorCode::not_found, "model folder: cannot be read", {}};
  for (; entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (error) return Error{ErrorCode::not_found, "model folder: cannot be read", {}};
    const std::filesystem::path& path = entry->path();
    if (path.extension() != ".bin") continue;
    auto& place = path.filename().string().starts_with("tok") ? files.tokenizer : files.weights;
    if (!place.empty()) {
      return Error{ErrorCode::invalid, "model folder: several tok*.bin or several other *.bin", {}};
    }
    place = path;
  }
  if (files.weights.empty()) {
    return Error{ErrorCode::not_found, "model folder: no *.bin with the weights", {}};
  }
  if (files.tokenizer.empty()) {
    return Error{ErrorCode::not_found, "model folder: no tok*.bin with the tokenizer", {}};
  }
  return files;
}

}  // namespace kv::runner
