// Tokenizer: byte-pair encoding by best score, as llama2.c does it: a leading space is added, text
// is cut into characters, unknown ones into bytes, then the adjacent pair with the best score is
// merged again and again, the leftmost first among equals. Threads: reading from any number. Cost:
// encode O(n log n) in the text's length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "allocator/base/result.h"
#include "allocator/base/token.h"

namespace kv::runner {

inline constexpr Token kBeginOfText = 1;
inline constexpr Token kEndOfText = 2;

class Tokenizer {
 public:
  // Reads exactly vocab_size entries. fails: not_found (also what is no regular file), corrupt.
  [[nodiscard]] static Result<Tokenizer> load(const std::filesystem::path& file,
                                              std::uint32_t vocab_size);

  // Begins with kBeginOfText; empty text is that token alone. fails: unsupported when the
  // vocabulary lacks the single bytes that the text needs.
  [[nodiscard]] Result<std::vector<Token>> encode(std::string_view text) const;
  // The text that `token` adds after `previous`. requires: token < size().
  [[nodiscard]] std::string piece(Token previous, Token token) const;
  // The text that `tokens` add after `previous`.
  [[nodiscard]] std::string decode(Token previous, std::span<const Token> tokens) const;
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(pieces_.size()); }

 private:
  Tokenizer() = default;
  [[nodiscard]] const Token* find(const std::string& text) const;
  // Single characters, unknown ones as bytes.
  [[nodiscard]] Result<std::vector<Token>> characters(std::string_view text) const;
  void merge(std::vector<Token>& tokens) const;

  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::unordered_map<std::string, Token> by_text_;  // for look-up only
};

}  // namespace kv::runner
