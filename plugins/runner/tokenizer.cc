#include "plugins/runner/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <queue>
#include <system_error>
#include <tuple>

namespace kv::runner {
namespace {

constexpr std::uint32_t kPieceBytesMax = 1024;
constexpr Token kFirstByteToken = 3;  // the byte b is token kFirstByteToken + b

Error corrupt(std::string_view reason) { return {ErrorCode::corrupt, reason, {}}; }

template <class T>
bool read_value(std::ifstream& stream, T& value) {
  return static_cast<bool>(stream.read(reinterpret_cast<char*>(&value), sizeof(value)));
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// "<0x0A>" is the byte 10; anything else is -1.
int byte_value(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'A' || c > 'F')) return -1;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& file, std::uint32_t vocab_size) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return Error{ErrorCode::not_found, "tokenizer file: is no regular file", {}};
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return Error{ErrorCode::not_found, "tokenizer file: cannot be read", {}};
  std::int32_t longest = 0;
  if (!read_value(stream, longest)) return corrupt("tokenizer file: shorter than its header");
  Tokenizer tokenizer;
  std::int32_t longest_read = 0;
  for (std::uint32_t i = 0; i < vocab_size; ++i) {
    float score = 0;
    std::int32_t length = 0;
    if (!read_value(stream, score) || !read_value(stream, length)) {
      return corrupt("tokenizer file: fewer pieces than the model has tokens");
    }
    if (!std::isfinite(score)) return corrupt("tokenizer file: a score is no number");
    if (length < 0 || static_cast<std::uint32_t>(length) > kPieceBytesMax) {
      return corrupt("tokenizer file: a piece's length is out of range");
    }
    longest_read = std::max(longest_read, length);
    std::string piece(static_cast<std::size_t>(length), '\0');
    if (!stream.read(piece.data(), length)) return corrupt("tokenizer file: ends within a piece");
    tokenizer.by_text_.emplace(piece, i);
    tokenizer.pieces_.push_back(std::move(piece));
    tokenizer.scores_.push_back(score);
  }
  if (stream.peek() != std::ifstream::traits_type::eof()) {
    return corrupt("tokenizer file: more pieces than the model has tokens");
  }
  // The only thing in this format that tells one of its files from another's.
  if (longest_read != longest) {
    return corrupt("tokenizer file: its longest piece is not as long as its header says");
  }
  return tokenizer;
}

const Token* Tokenizer::find(const std::string& text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? nullptr : &found->second;
}

Result<std::vector<Token>> Tokenizer::characters(std::string_view text) const {
  std::vector<Token> tokens;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    while (end < text.size() && end - begin < 4 && continues_character(text[end])) ++end;
    const std::string_view character = text.substr(begin, end - begin);
    if (const Token* token = find(std::string(character))) {
      tokens.push_back(*token);
    } else {
      for (const char c : character) {
        const Token byte = kFirstByteToken + static_cast<unsigned char>(c);
        if (byte >= size()) {
          return Error{
              ErrorCode::unsupported, "tokenizer: a character is not in the vocabulary", {}};
        }
        tokens.push_back(byte);
      }
    }
    begin = end;
  }
  return tokens;
}

void Tokenizer::merge(std::vector<Token>& tokens) const {
  // A linked list over the tokens; a candidate is valid while both of its ends are as they were.
  struct Candidate {
    float score;
    std::size_t left, right;
    Token left_token, right_token, merged;
    bool operator<(const Candidate& other) const {  // the queue's top: best score, then leftmost
      return std::tuple(score, other.left) < std::tuple(other.score, left);
    }
  };
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> next(tokens.size());
  std::vector<std::size_t> previous(tokens.size());
  std::vector<bool> gone(tokens.size(), false);
  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::size_t left, std::size_t right) {
    if (left == kNone || right == kNone) return;
    if (const Token* merged = find(pieces_[tokens[left]] + pieces_[tokens[right]])) {
      queue.push({scores_[*merged], left, right, tokens[left], tokens[right], *merged});
    }
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == tokens.size() ? kNone : i + 1;
    offer(previous[i], i);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    if (gone[best.left] || gone[best.right] || next[best.left] != best.right ||
        tokens[best.left] != best.left_token || tokens[best.right] != best.right_token) {
      continue;
    }
    tokens[best.left] = best.merged;
    gone[best.right] = true;
    next[best.left] = next[best.right];
    if (next[best.left] != kNone) previous[next[best.left]] = best.left;
    offer(previous[best.left], best.left);
    offer(best.left, next[best.left]);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!gone[i]) tokens[kept++] = tokens[i];
  }
  tokens.resize(kept);
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> tokens{kBeginOfText};
  if (text.empty()) return tokens;
  KV_TRY(std::vector<Token> rest, characters(" " + std::string(text)));
  merge(rest);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

std::string Tokenizer::piece(Token previous, Token token) const {
  KV_CHECK(token < size());
  std::string_view piece = pieces_[token];
  if (const int byte = byte_value(piece); byte >= 0) return std::string(1, static_cast<char>(byte));
  if (previous == kBeginOfText && piece.starts_with(' ')) piece.remove_prefix(1);
  return std::string(piece);
}

std::string Tokenizer::decode(Token previous, std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) {
    text += piece(previous, token);
    previous = token;
  }
  return text;
}

}  // namespace kv::runner
