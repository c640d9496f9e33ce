#include "tools/cachectl/prompt.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plugins/client/temporary_dir.h"

namespace kv::cachectl {
namespace {

constexpr const char* kModel = KV_SOURCE_DIR "/plugins/runner/models/stories260K";

TEST(Prompt, TakesANamespaceByItsFields) {
  CommandLine line;
  line.weights = "w";
  line.model_config = "c";
  line.adapter = "a";
  line.adapter_revision = "r";
  line.salt = "s";
  line.tokens = "7";
  const auto prompt = read_prompt(line);
  ASSERT_TRUE(prompt);
  const auto fields = prompt->fields();
  EXPECT_EQ(fields.weights, "w");
  EXPECT_EQ(fields.model_config, "c");
  EXPECT_EQ(fields.adapter, "a");
  EXPECT_EQ(fields.adapter_revision, "r");
  EXPECT_EQ(fields.salt, "s");
  EXPECT_TRUE(fields.tenant.empty()) << "the tenant is the connection's";
  EXPECT_EQ(prompt->tokens, std::vector<Token>{7});
}

TEST(Prompt, ReadsTokensFromAFile) {
  const test::TemporaryDir dir;
  std::ofstream(dir.path() + "/tokens.json") << "[1, 2, 3]\n";
  CommandLine line;
  line.weights = "w";
  line.tokens = "@" + dir.path() + "/tokens.json";
  EXPECT_EQ(read_prompt(line).value().tokens, (std::vector<Token>{1, 2, 3}));
  line.tokens = "@" + dir.path() + "/missing";
  EXPECT_EQ(read_prompt(line).error().code, ErrorCode::not_found);
}

TEST(Prompt, TokenizesTextAsTheModelsOwnReferenceDid) {
  std::ifstream file(std::string(kModel) + "/golden_greedy.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden["cases"].size(), 5U);
  for (const auto& item : golden["cases"]) {
    CommandLine line;
    line.model = kModel;
    line.prompt = item["prompt"].get<std::string>();
    const auto prompt = read_prompt(line);
    ASSERT_TRUE(prompt) << prompt.error().reason;
    EXPECT_EQ(prompt->tokens, item["prompt_tokens"].get<std::vector<Token>>());
    // The published SHA-256 of stories260K.bin.
    EXPECT_EQ(prompt->weights, "b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696");
  }
}

TEST(Prompt, SaysThatAModelFolderIsMissing) {
  CommandLine line;
  line.model = "no/such/folder";
  line.prompt = "text";
  EXPECT_EQ(read_prompt(line).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace kv::cachectl
