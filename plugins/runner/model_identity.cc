#include "plugins/runner/model_identity.h"

namespace kv::runner {

ModelIdentity model_identity(const Model& model, GemmBackend backend) {
  const ModelConfig& config = model.config();
  std::string text = "arch=llama";
  const auto add = [&text](std::string_view name, std::string_view value) {
    text.append(" ").append(name).append("=").append(value);
  };
  add("dim", std::to_string(config.dim));
  add("hidden_dim", std::to_string(config.hidden_dim));
  add("layers", std::to_string(config.layer_count));
  add("heads", std::to_string(config.head_count));
  add("kv_heads", std::to_string(config.kv_head_count));
  add("vocab", std::to_string(config.vocab_size));
  // The constants of the file format (ModelConfig).
  add("rope", "interleaved");
  add("rope_theta", "10000");
  add("rms_epsilon", "1e-5");
  add("compute", "f32");
  add("gemm", gemm_backend_name(backend));
  return {model.digest(), text};
}

}  // namespace kv::runner
