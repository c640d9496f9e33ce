// The tokenizer on its own: merges, bytes, and files that are not what they say.
#include "plugins/runner/tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>
#include <unistd.h>

#include "allocator/base/prng.h"

namespace kv::test {
namespace {

class TokenizerFile : public testing::Test {
 protected:
  struct Piece {
    float score;
    std::string text;
  };
  TokenizerFile() { std::filesystem::create_directories(folder_); }
  ~TokenizerFile() override { std::filesystem::remove_all(folder_); }
  TokenizerFile(const TokenizerFile&) = delete;
  TokenizerFile& operator=(const TokenizerFile&) = delete;
  TokenizerFile(TokenizerFile&&) = delete;
  TokenizerFile& operator=(TokenizerFile&&) = delete;

  static std::string bytes_of(const std::vector<Piece>& pieces) {
    std::size_t longest = 0;
    for (const Piece& piece : pieces) longest = std::max(longest, piece.text.size());
    const auto header = static_cast<std::int32_t>(longest);
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    for (const Piece& piece : pieces) {
      const auto length = static_cast<std::int32_t>(piece.text.size());
      bytes.append(reinterpret_cast<const char*>(&piece.score), 4);
      bytes.append(reinterpret_cast<const char*>(&length), 4);
      bytes += piece.text;
    }
    return bytes;
  }
  Result<runner::Tokenizer> load(const std::string& bytes, std::uint32_t vocab_size) {
    std::ofstream(folder_ / "tok.bin", std::ios::binary) << bytes;
    return runner::Tokenizer::load(folder_ / "tok.bin", vocab_size);
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("kv_tokenizer_test." + std::to_string(getpid()));
};

TEST_F(TokenizerFile, MergesTheBestScoreFirstAndTheLeftmostAmongEquals) {
  const std::vector<Piece> pieces = {{0, "<unk>"}, {0, "<s>"}, {0, "</s>"}, {0, " "},
                                     {0, "a"},     {0, "b"},   {-2, "ab"},  {-1, "ba"},
                                     {-3, "aba"},  {-9, " a"}, {-1, "aa"}};
  auto tokenizer = load(bytes_of(pieces), 11);
  ASSERT_TRUE(tokenizer.has_value());
  using Tokens = std::vector<Token>;
  EXPECT_EQ(*tokenizer->encode("bab"), (Tokens{1, 3, 7, 5}));  // "ba" beats "ab"
  EXPECT_EQ(*tokenizer->encode("aba"), (Tokens{1, 3, 8}));     // then "aba" beats " a"
  // Of the two pairs "aa" the left one goes first.
  EXPECT_EQ(*tokenizer->encode("aaa"), (Tokens{1, 3, 10, 4}));
  EXPECT_EQ(*tokenizer->encode("ab"), (Tokens{1, 3, 6}));
  EXPECT_EQ(*tokenizer->encode(""), (Tokens{1}));
}

// The rule itself, in its slow form: look at all pairs, merge the best one, begin again.
std::vector<Token> slow_merge(std::vector<Token> tokens,
                              const std::vector<std::pair<float, std::string>>& pieces) {
  while (true) {
    float best = -1e10F;
    std::size_t at = tokens.size();
    Token merged = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const std::string text = pieces[tokens[i]].second + pieces[tokens[i + 1]].second;
      for (Token t = 0; t < pieces.size(); ++t) {
        if (pieces[t].second == text && pieces[t].first > best) {
          best = pieces[t].first;
          at = i;
          merged = t;
        }
      }
    }
    if (at == tokens.size()) return tokens;
    tokens[at] = merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST_F(TokenizerFile, EqualsTheSlowFormOfTheRuleOnRandomTexts) {
  std::vector<Piece> pieces = {{0, "<unk>"}, {0, "<s>"}, {0, "</s>"}, {0, " "}, {0, "a"}, {0, "b"}};
  for (const char* text :
       {"ab", "ba", "aa", "bb", "aba", "bab", "abab", "aab", "abb", " a", "bba"}) {
    pieces.push_back({-static_cast<float>(pieces.size() % 4), text});
  }
  auto tokenizer = load(bytes_of(pieces), static_cast<std::uint32_t>(pieces.size()));
  ASSERT_TRUE(tokenizer.has_value());
  std::vector<std::pair<float, std::string>> plain;
  plain.reserve(pieces.size());
  for (const Piece& piece : pieces) plain.emplace_back(piece.score, piece.text);
  Prng prng(4);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    std::vector<Token> singles{3};
    for (std::uint64_t i = 1 + prng.below(20); i > 0; --i) {
      const auto token = static_cast<Token>(4 + prng.below(2));
      singles.push_back(token);
      text += pieces[token].text;
    }
    std::vector<Token> wanted = slow_merge(singles, plain);
    wanted.insert(wanted.begin(), 1);
    ASSERT_EQ(*tokenizer->encode(text), wanted) << text;
  }
}

TEST_F(TokenizerFile, CharactersOutsideTheVocabularyBecomeBytesAndComeBack) {
  std::vector<Piece> pieces = {{0, "<unk>"}, {0, "<s>"}, {0, "</s>"}};
  for (int b = 0; b < 256; ++b) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02X>", static_cast<unsigned>(b));
    pieces.push_back({0, text.data()});
  }
  auto tokenizer = load(bytes_of(pieces), 259);
  ASSERT_TRUE(tokenizer.has_value());
  std::string text;
  for (int b = 1; b < 256; ++b) text += static_cast<char>(b);  // also no valid UTF-8
  const auto tokens = tokenizer->encode(text);
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->size(), 257U);  // the begin token, the leading space, 255 bytes
  EXPECT_EQ(tokenizer->decode(0, std::span(*tokens).subspan(1)), " " + text);
  EXPECT_EQ((*tokens)[2], 3U + 1U);
}

TEST_F(TokenizerFile, AVocabularyWithoutBytesRefusesOtherText) {
  auto tokenizer = load(bytes_of({{0, "<unk>"}, {0, "<s>"}, {0, "</s>"}, {0, " "}}), 4);
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(tokenizer->encode("x").error().code, ErrorCode::unsupported);
}

TEST_F(TokenizerFile, EveryTruncationAndAWrongCountIsAnErrorNeverACrash) {
  const std::string good = bytes_of({{0, "<unk>"}, {0, "<s>"}, {-1, "abc"}, {0, ""}});
  ASSERT_TRUE(load(good, 4).has_value());
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_EQ(load(good.substr(0, bytes), 4).error().code, ErrorCode::corrupt) << bytes;
  }
  EXPECT_EQ(load(good, 3).error().code, ErrorCode::corrupt);
  EXPECT_EQ(load(good, 5).error().code, ErrorCode::corrupt);
  EXPECT_EQ(runner::Tokenizer::load(folder_ / "absent", 4).error().code, ErrorCode::not_found);
}

TEST_F(TokenizerFile, LengthsAndScoresOutOfRangeAreErrors) {
  for (const std::int32_t length : {-1, 1025, std::numeric_limits<std::int32_t>::max()}) {
    std::string bytes = bytes_of({{0, "a"}});
    std::memcpy(bytes.data() + 8, &length, 4);
    EXPECT_EQ(load(bytes, 1).error().code, ErrorCode::corrupt) << length;
  }
  EXPECT_EQ(load(bytes_of({{std::nanf(""), "a"}}), 1).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace kv::test
