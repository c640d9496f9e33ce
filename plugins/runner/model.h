// Model: configuration and weights of a Llama-architecture decoder, read from a llama2.c legacy
// file or made from a seed. Read-only once made. Owner: the Model owns one aligned buffer; all
// weight pointers point into it. Threads: reading from any number. Cost: load reads the file once
// and hashes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/result.h"
#include "allocator/kv_layout.h"

namespace kv::runner {

struct ModelConfig {
  std::uint32_t dim = 0;
  std::uint32_t hidden_dim = 0;
  std::uint32_t layer_count = 0;
  std::uint32_t head_count = 0;
  std::uint32_t kv_head_count = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t context_length = 0;
  bool shared_classifier = true;
  // Fixed by the file format.
  static constexpr float kRopeTheta = 10000.0F;
  static constexpr float kRmsEpsilon = 1e-5F;
  [[nodiscard]] std::uint32_t head_dim() const { return dim / head_count; }
  [[nodiscard]] std::uint32_t kv_dim() const { return kv_head_count * head_dim(); }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// fails: invalid, with the field: zero, absurd, or sizes that do not divide.
[[nodiscard]] Result<void> validate(const ModelConfig& config);

// Matrices are row major, [outputs][inputs].
struct LayerWeights {
  const float* rms_attention;
  const float* wq;
  const float* wk;
  const float* wv;
  const float* wo;
  const float* rms_ffn;
  const float* gate;
  const float* down;
  const float* up;
};

class Model {
 public:
  // fails: not_found (also what is no regular file: a pipe could hang for ever); corrupt when the
  // file contradicts its own header; exhausted when there is no memory for the weights.
  [[nodiscard]] static Result<Model> load(const std::filesystem::path& file);
  // Random weights in a range that keeps activations near one. requires: validate(config) passed.
  [[nodiscard]] static Model seeded(const ModelConfig& config, std::uint64_t seed);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  // Lower-case hexadecimal SHA-256 of the file (seeded: of its header and weights).
  [[nodiscard]] const std::string& digest() const { return digest_; }
  [[nodiscard]] const float* embedding() const { return embedding_; }
  [[nodiscard]] const float* rms_final() const { return rms_final_; }
  [[nodiscard]] const float* classifier() const { return classifier_; }
  [[nodiscard]] const LayerWeights& layer(std::uint32_t index) const { return layers_[index]; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  // The file as it is, placed so that the floats behind its header are aligned.
  using Buffer = std::unique_ptr<std::byte, Free>;
  [[nodiscard]] static Buffer allocate(std::size_t floats);  // null without memory
  Model(const ModelConfig& config, Buffer buffer, std::size_t floats);
  void place_weights();
  [[nodiscard]] std::span<std::byte> file();
  [[nodiscard]] std::span<float> floats();

  ModelConfig config_;
  std::size_t float_count_;
  Buffer buffer_;
  std::string digest_;
  const float* embedding_ = nullptr;
  const float* rms_final_ = nullptr;
  const float* classifier_ = nullptr;
  std::vector<LayerWeights> layers_;
};

// One full layer group in fp32.
[[nodiscard]] KvLayout kv_layout(const ModelConfig& config, std::uint32_t block_tokens);

// The two files of a model folder: tok*.bin is the tokenizer, the only other *.bin the weights.
struct ModelFiles {
  std::filesystem::path weights;
  std::filesystem::path tokenizer;
};
// fails: not_found, invalid (none or several of a kind).
[[nodiscard]] Result<ModelFiles> find_model_files(const std::filesystem::path& folder);

}  // namespace kv::runner
