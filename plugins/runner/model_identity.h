// ModelIdentity: what a runner says about its model in a namespace: two runners with equal texts
// compute equal KV for equal tokens. Tools that look a prompt up build the same namespace from it.
// Threads: none. Cost: O(1).
#pragma once

#include <cstdint>
#include <string>

#include "allocator/namespace.h"
#include "plugins/runner/linear.h"
#include "plugins/runner/model.h"

namespace kv::runner {

struct ModelIdentity {
  std::string weights;       // SHA-256 of the model file
  std::string model_config;  // dimensions, rotary regime, compute type
  // Views into this identity.
  [[nodiscard]] NamespaceFields fields(std::uint32_t block_tokens) const {
    NamespaceFields fields;
    fields.weights = weights;
    fields.model_config = model_config;
    fields.block_tokens = block_tokens;
    return fields;
  }
};

// The backend belongs to it: another order of addition gives other bits.
[[nodiscard]] ModelIdentity model_identity(const Model& model, GemmBackend backend);

}  // namespace kv::runner
