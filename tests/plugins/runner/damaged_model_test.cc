// Model folders that are damaged, foreign or hostile: an error that says which file, never a crash,
// a hang or memory that the file does not deserve.
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/plugins/client/temporary_dir.h"
#include "tests/plugins/runner/stories.h"
#include "tests/tools/cachectl/program.h"

namespace kv::test {
namespace {

constexpr std::size_t kHeaderBytes = 28;

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class DamagedModel : public testing::Test {
 protected:
  DamagedModel()
      : weights_(content_of(model_folder() / "stories260K.bin")),
        tokenizer_(content_of(model_folder() / "tok512.bin")) {}

  [[nodiscard]] ErrorCode load_weights(const std::string& bytes) const {
    write("model.bin", bytes);
    const auto model = runner::Model::load(dir_.path() + "/model.bin");
    return model ? ErrorCode::ok : model.error().code;
  }
  [[nodiscard]] Result<runner::Tokenizer> load_tokenizer(const std::string& bytes) const {
    write("tok.bin", bytes);
    return runner::Tokenizer::load(dir_.path() + "/tok.bin", 512);
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(dir_.path() + "/" + name, std::ios::binary | std::ios::trunc) << bytes;
  }
  // One line that names this file; exit code 1, nothing on stdout.
  void expect_blamed(const std::string& name) const {
    const ProgramResult result = run_program(
        {built("cachesvc-runner"), "generate", "--prompt", "a", "--model", dir_.path()});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("error: --model " + dir_.path() + "/" + name + ": "))
        << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  }

  TemporaryDir dir_;
  std::string weights_, tokenizer_;
};

TEST_F(DamagedModel, EveryFlippedBitOfItsHeaderIsCorrupt) {
  ASSERT_EQ(load_weights(weights_), ErrorCode::ok);
  const std::string file = dir_.path() + "/model.bin";
  for (std::size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    std::string header = weights_.substr(0, kHeaderBytes);
    header[bit / 8] = static_cast<char>(header[bit / 8] ^ (1 << (bit % 8)));
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary) << header;
    const auto model = runner::Model::load(file);
    ASSERT_FALSE(model.has_value()) << "bit " << bit;
    EXPECT_EQ(model.error().code, ErrorCode::corrupt) << "bit " << bit;
  }
}

TEST_F(DamagedModel, AFileCutAnywhereIsCorrupt) {
  const std::size_t size = weights_.size();
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{27}, kHeaderBytes,
        std::size_t{29}, std::size_t{32}, std::size_t{4096}, size / 2, size - 4, size - 1}) {
    EXPECT_EQ(load_weights(weights_.substr(0, bytes)), ErrorCode::corrupt) << bytes;
  }
  EXPECT_EQ(load_weights(weights_ + std::string(1, '\0')), ErrorCode::corrupt);
  EXPECT_EQ(load_weights(weights_), ErrorCode::ok);
}

TEST_F(DamagedModel, ForeignFilesAreCorrupt) {
  const std::string gguf = std::string("GGUF\3\0\0\0", 8) + std::string(5'000, '\1');
  const std::string safetensors = std::string("\x40\0\0\0\0\0\0\0{\"w\":{}}", 16) + "x";
  const std::string llama2_c_version_1 = "24ka" + std::string(5'000, '\1');
  for (const std::string& bytes :
       {gguf, safetensors, llama2_c_version_1, std::string("PK\3\4"), tokenizer_,
        std::string(weights_.size(), '\0'), std::string(weights_.size(), '\xFF')}) {
    EXPECT_EQ(load_weights(bytes), ErrorCode::corrupt) << bytes.substr(0, 4);
  }
  EXPECT_EQ(load_tokenizer(weights_).error().code, ErrorCode::corrupt);
  EXPECT_EQ(load_tokenizer(gguf).error().code, ErrorCode::corrupt);
}

TEST_F(DamagedModel, AWeightThatIsNoNumberIsCorrupt) {
  for (const std::uint32_t bits : {0x7F80'0000U, 0xFF80'0000U, 0x7FC0'0000U, 0xFFFF'FFFFU}) {
    const std::size_t middle = kHeaderBytes + 4 * (weights_.size() / 8);
    for (const std::size_t byte : {kHeaderBytes, middle, weights_.size() - 4}) {
      std::string bytes = weights_;
      std::memcpy(bytes.data() + byte, &bits, sizeof(bits));
      EXPECT_EQ(load_weights(bytes), ErrorCode::corrupt) << bits << " at " << byte;
    }
  }
}

// A changed weight is another model: another name, so that no KV is shared with the good one.
TEST_F(DamagedModel, AFlippedBitOfAWeightIsAnotherModel) {
  for (const std::size_t byte : {kHeaderBytes, weights_.size() / 2, weights_.size() - 1}) {
    std::string bytes = weights_;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
    write("model.bin", bytes);
    const auto model = runner::Model::load(dir_.path() + "/model.bin");
    ASSERT_TRUE(model.has_value());
    EXPECT_NE(model->digest(), Stories::get().model.digest()) << byte;
  }
}

TEST_F(DamagedModel, AHeaderThatWantsMoreMemoryThanThereIsIsRefusedBeforeItIsTaken) {
  // Sizes that are in range, and a file that really is so long: 4.4 TB of holes.
  const std::array<std::int32_t, 7> header = {65'536, 262'144, 16, 1'024, 1'024, 512, 512};
  write("model.bin", std::string(reinterpret_cast<const char*>(header.data()), kHeaderBytes));
  const std::uint64_t dim = 65'536;
  const std::uint64_t layer = 2 * dim + 4 * dim * dim + 3 * dim * 262'144;
  const std::uint64_t floats = 512 * dim + 16 * layer + dim + std::uint64_t{512} * 64;
  const std::string file = dir_.path() + "/model.bin";
  std::error_code error;
  std::filesystem::resize_file(file, kHeaderBytes + 4 * floats, error);
  if (error) GTEST_SKIP() << "this file system holds no file of 4.4 TB: " << error.message();
  EXPECT_EQ(runner::Model::load(file).error().code, ErrorCode::exhausted);
}

TEST_F(DamagedModel, APipeInPlaceOfAFileIsRefusedAndNeverWaitedFor) {
  const std::string pipe = dir_.path() + "/pipe.bin";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(runner::Model::load(pipe).error().code, ErrorCode::not_found);
  EXPECT_EQ(runner::Tokenizer::load(pipe, 512).error().code, ErrorCode::not_found);
}

// There is no checksum in the format: a change that leaves it well formed is another tokenizer,
// and must be one that can be used.
TEST_F(DamagedModel, AFlippedByteOfATokenizerIsAnErrorOrAUsableTokenizer) {
  std::size_t refused = 0;
  for (std::size_t byte = 0; byte < tokenizer_.size(); byte += byte < 40 ? 1 : 11) {
    std::string bytes = tokenizer_;
    bytes[byte] = static_cast<char>(bytes[byte] ^ (byte % 2 == 0 ? 0x80 : 0xFF));
    const auto tokenizer = load_tokenizer(bytes);
    if (!tokenizer) {
      EXPECT_EQ(tokenizer.error().code, ErrorCode::corrupt);
      ++refused;
      continue;
    }
    const auto tokens = tokenizer->encode("Once upon a time");
    if (!tokens) continue;  // a character that it needs is gone
    for (const Token token : *tokens) ASSERT_LT(token, tokenizer->size());
    EXPECT_FALSE(tokenizer->decode(1, *tokens).empty());
  }
  // Of 14 bytes a piece 4 are its length, which is then wrong.
  EXPECT_GE(refused, 100U);
}

TEST_F(DamagedModel, ATokenizerCutAnywhereIsCorrupt) {
  for (std::size_t bytes = 0; bytes < tokenizer_.size(); bytes += 23) {
    EXPECT_EQ(load_tokenizer(tokenizer_.substr(0, bytes)).error().code, ErrorCode::corrupt)
        << bytes;
  }
}

TEST_F(DamagedModel, TheProgramNamesTheFileToBlame) {
  write("tok.bin", tokenizer_);
  write("model.bin", weights_.substr(0, 1'000));
  expect_blamed("model.bin");
  write("model.bin", weights_);
  write("tok.bin", tokenizer_.substr(0, 1'000));
  expect_blamed("tok.bin");
  std::filesystem::remove(dir_.path() + "/tok.bin");
  ASSERT_EQ(mkfifo((dir_.path() + "/tok.bin").c_str(), 0600), 0);
  expect_blamed("tok.bin");
}

}  // namespace
}  // namespace kv::test
