// Reading model files: the real one, and ones that lie about themselves.
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/plugins/runner/stories.h"

namespace kv::test {
namespace {

class ModelFile : public testing::Test {
 protected:
  ModelFile() { std::filesystem::create_directories(folder_); }
  ~ModelFile() override { std::filesystem::remove_all(folder_); }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ModelFile(ModelFile&&) = delete;
  ModelFile& operator=(ModelFile&&) = delete;

  Result<runner::Model> load(const std::array<std::int32_t, 7>& header, std::size_t floats) {
    std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof(header));
    for (std::size_t i = 0; i < floats; ++i) {
      const auto value = static_cast<float>(i);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    return load_bytes(bytes);
  }
  Result<runner::Model> load_bytes(const std::string& bytes) {
    std::ofstream(folder_ / "model.bin", std::ios::binary) << bytes;
    return runner::Model::load(folder_ / "model.bin");
  }
  void touch(const std::string& name) { std::ofstream(folder_ / name) << "x"; }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("kv_model_test." + std::to_string(getpid()));
};

// dim 4, hidden 6, 2 layers, 2 heads of 2, 1 kv head, 3 tokens, 5 positions:
// 12 + 2 * (4 + 16 + 8 + 8 + 16 + 4 + 3 * 24) + 4 + 2 * 5 = 282 floats.
constexpr std::array<std::int32_t, 7> kSmall = {4, 6, 2, 2, 1, 3, 5};
constexpr std::size_t kSmallFloats = 282;

TEST_F(ModelFile, TheRealModelHasThePublishedShapeAndDigest) {
  const runner::Model& model = Stories::get().model;
  EXPECT_EQ(model.config(), (runner::ModelConfig{.dim = 64,
                                                 .hidden_dim = 172,
                                                 .layer_count = 5,
                                                 .head_count = 8,
                                                 .kv_head_count = 4,
                                                 .vocab_size = 512,
                                                 .context_length = 512,
                                                 .shared_classifier = true}));
  EXPECT_EQ(model.digest(), "b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696");
  EXPECT_EQ(bytes_per_token(runner::kv_layout(model.config(), 16).groups.front()), 1280U);
}

TEST_F(ModelFile, WeightsLieWhereTheFormatPutsThem) {
  const auto model = load(kSmall, kSmallFloats);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->embedding()[0], 0.0F);
  EXPECT_EQ(model->classifier(), model->embedding());
  const runner::LayerWeights& second = model->layer(1);
  EXPECT_EQ(*second.rms_attention, 12.0F + 4);
  EXPECT_EQ(*second.wq, 20.0F + 16);
  EXPECT_EQ(*second.wk, 52.0F + 8);
  EXPECT_EQ(*second.wv, 68.0F + 8);
  EXPECT_EQ(*second.wo, 84.0F + 16);
  EXPECT_EQ(*second.rms_ffn, 116.0F + 4);
  EXPECT_EQ(*second.gate, 124.0F + 24);
  EXPECT_EQ(*second.down, 172.0F + 24);
  EXPECT_EQ(*second.up, 220.0F + 24);
  EXPECT_EQ(*model->rms_final(), 268.0F);
}

TEST_F(ModelFile, ANegativeVocabularyMeansAClassifierOfItsOwn) {
  auto header = kSmall;
  header[5] = -3;
  const auto model = load(header, kSmallFloats + 12);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(*model->classifier(), 282.0F);
}

TEST_F(ModelFile, EveryOtherLengthIsCorrupt) {
  EXPECT_EQ(load(kSmall, kSmallFloats - 1).error().code, ErrorCode::corrupt);
  EXPECT_EQ(load(kSmall, kSmallFloats + 1).error().code, ErrorCode::corrupt);
  for (std::size_t bytes = 0; bytes < sizeof(kSmall); ++bytes) {
    EXPECT_EQ(load_bytes(std::string(bytes, '\1')).error().code, ErrorCode::corrupt) << bytes;
  }
  EXPECT_EQ(runner::Model::load(folder_ / "absent").error().code, ErrorCode::not_found);
  EXPECT_EQ(runner::Model::load(folder_).error().code, ErrorCode::not_found);
}

TEST_F(ModelFile, HostileHeadersAreCorruptAndReserveNothing) {
  for (std::size_t field = 0; field < 7; ++field) {
    for (const std::int32_t value : {0, -1, std::numeric_limits<std::int32_t>::max(),
                                     std::numeric_limits<std::int32_t>::min()}) {
      auto header = kSmall;
      header[field] = value;
      EXPECT_EQ(load(header, kSmallFloats).error().code, ErrorCode::corrupt) << field << value;
    }
  }
  // Each size is in range and the product is far beyond any memory: refused by the file's length.
  EXPECT_EQ(load({65536, 262144, 1024, 1024, 1024, 1048576, 1048576}, 10).error().code,
            ErrorCode::corrupt);
  EXPECT_EQ(load({4, 6, 2, 3, 1, 3, 5}, kSmallFloats).error().code, ErrorCode::corrupt);
  EXPECT_EQ(load({12, 6, 2, 4, 3, 3, 5}, kSmallFloats).error().code, ErrorCode::corrupt);
}

TEST_F(ModelFile, AFolderMustHoldExactlyOneModelAndOneTokenizer) {
  EXPECT_EQ(runner::find_model_files(folder_ / "absent").error().code, ErrorCode::not_found);
  EXPECT_EQ(runner::find_model_files(folder_).error().code, ErrorCode::not_found);
  touch("tok7.bin");
  EXPECT_EQ(runner::find_model_files(folder_).error().code, ErrorCode::not_found);
  touch("some.bin");
  touch("README.md");
  const auto files = runner::find_model_files(folder_);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->weights.filename(), "some.bin");
  EXPECT_EQ(files->tokenizer.filename(), "tok7.bin");
  touch("other.bin");
  EXPECT_EQ(runner::find_model_files(folder_).error().code, ErrorCode::invalid);
}

TEST_F(ModelFile, SeededModelsAreTheSameForASeedAndDifferBetweenSeeds) {
  const runner::ModelConfig config{.dim = 32,
                                   .hidden_dim = 40,
                                   .layer_count = 1,
                                   .head_count = 4,
                                   .kv_head_count = 2,
                                   .vocab_size = 50,
                                   .context_length = 64};
  EXPECT_EQ(runner::Model::seeded(config, 1).digest(), runner::Model::seeded(config, 1).digest());
  EXPECT_NE(runner::Model::seeded(config, 1).digest(), runner::Model::seeded(config, 2).digest());
}

TEST_F(ModelFile, TheIdentityNamesEverythingThatChangesKv) {
  const runner::Model& model = Stories::get().model;
  const auto tiles = runner::model_identity(model, runner::GemmBackend::openblas_tiles);
  const auto loops = runner::model_identity(model, runner::GemmBackend::fixed_order);
  EXPECT_EQ(tiles.weights, model.digest());
  EXPECT_EQ(tiles.model_config,
            "arch=llama dim=64 hidden_dim=172 layers=5 heads=8 kv_heads=4 vocab=512 "
            "rope=interleaved rope_theta=10000 rms_epsilon=1e-5 compute=f32 gemm=openblas-tiles");
  EXPECT_NE(tiles.model_config, loops.model_config);
}

}  // namespace
}  // namespace kv::test
