#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/block_key.h"
#include "allocator/namespace.h"

namespace kv {
namespace {

std::string hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest.bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

TEST(BlockKeyGolden, EqualsTheVectorsForEveryBlockSize) {
  std::ifstream file(KV_SOURCE_DIR "/tests/golden/block_key/vectors.json");
  ASSERT_TRUE(file.is_open());
  const auto vectors = nlohmann::json::parse(file);
  const auto& fields = vectors["fields"];
  const auto text = [&](const char* name) { return fields[name].get_ref<const std::string&>(); };
  const std::string weights = text("weights");
  const std::string model_config = text("model_config");
  const std::string tenant = text("tenant");
  const std::string salt = text("salt");
  std::size_t compared = 0;
  for (const auto& chain : vectors["chains"]) {
    const std::uint32_t block_tokens = chain["block_tokens"];
    SCOPED_TRACE(block_tokens);
    Digest key = namespace_digest({.weights = weights,
                                   .model_config = model_config,
                                   .tenant = tenant,
                                   .salt = salt,
                                   .block_tokens = block_tokens});
    EXPECT_EQ(hex(key), chain["namespace_digest"].get<std::string>());
    const std::vector<Token> tokens = chain["tokens"];
    for (std::size_t i = 0; i < chain["keys"].size(); ++i) {
      key = next_block_key(key, std::span(tokens).subspan(i * block_tokens, block_tokens));
      EXPECT_EQ(hex(key), chain["keys"][i].get<std::string>());
      ++compared;
    }
  }
  EXPECT_EQ(compared, 28U);
}

}  // namespace
}  // namespace kv
