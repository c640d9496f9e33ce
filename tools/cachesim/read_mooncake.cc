// Mooncake traces: one request a line, {"timestamp" (ms), "input_length", "output_length",
// "hash_ids": [...]}; an id stands for a block of 512 tokens, or as many as block_size or
// block_tokens say, in any line.
#include <limits>
#include <utility>
#include <vector>

#include "tools/cachesim/trace_reader.h"

namespace kv::cachesim {
namespace {

using nlohmann::json;

constexpr std::uint32_t kTokensMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kMooncakeBlockTokens = 512;
constexpr std::uint32_t kBlockTokensMax = 1U << 20U;

class MooncakeReader {
 public:
  explicit MooncakeReader(Reading& reading) : reading_(reading) {
    block_tokens_ = reading.options.block_tokens;
  }

  LineVerdict take(std::string_view line) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) return "no JSON object";
    if (LineVerdict verdict = take_block_tokens(object); !verdict.empty()) return verdict;
    const auto ids = object.find("hash_ids");
    if (ids == object.end() && stated_ && !object.contains("input_length")) return {};  // a header
    if (ids == object.end() || !ids->is_array()) return "hash_ids is not a list";
    const auto input = whole_field(object, "input_length", kTokensMax);
    if (!input) return "input_length is not a number of tokens";
    const auto time = time_field(object, "timestamp", 1);
    if (!time) return "timestamp is not a time";
    identities_.clear();
    for (const json& id : *ids) {
      const auto number = whole_number(id, std::numeric_limits<std::uint64_t>::max());
      if (!number) return "hash_ids holds something that is not a whole number";
      identities_.push_back(*number);
    }
    TraceRequest request;
    request.time_ms = *time;
    request.input_tokens = static_cast<std::uint32_t>(*input);
    request.output_tokens =
        static_cast<std::uint32_t>(whole_field(object, "output_length", kTokensMax).value_or(0));
    full_ = full_ || !reading_.builder.add(request, identities_);
    return {};
  }

  Result<void> finish() {
    reading_.builder.trace().block_tokens =
        block_tokens_ > 0 ? block_tokens_ : kMooncakeBlockTokens;
    if (full_) return kTooManyBlocks;
    return {};
  }

 private:
  LineVerdict take_block_tokens(const json& object) {
    stated_ = false;
    for (const char* name : {"block_size", "block_tokens"}) {
      if (!object.contains(name)) continue;
      const auto tokens = whole_field(object, name, kBlockTokensMax);
      if (!tokens || *tokens == 0) return std::string(name) + " is not a number of tokens";
      stated_ = true;
      if (reading_.options.block_tokens > 0) continue;  // the command line knows better
      if (block_tokens_ > 0 && block_tokens_ != *tokens) {
        return std::string(name) + " differs from that of the lines before";
      }
      block_tokens_ = static_cast<std::uint32_t>(*tokens);
    }
    return {};
  }

  Reading& reading_;
  std::vector<std::uint64_t> identities_;
  std::uint32_t block_tokens_ = 0;
  bool stated_ = false;  // by the line at hand
  bool full_ = false;
};

}  // namespace

Result<void> read_mooncake(Reading& reading) {
  MooncakeReader reader(reading);
  KV_TRY_VOID(for_each_line(reading, [&](std::string_view line) { return reader.take(line); }));
  return reader.finish();
}

}  // namespace kv::cachesim
