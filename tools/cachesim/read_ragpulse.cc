// RAGPulse: one request a line, {"timestamp" (seconds, as text), "input_length", "output_length",
// "hash_ids": {category: [...]}}, in no order. An id is content of its own length, which lies in
// files beside the trace; the prompt is the ids in the order of the categories.
#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/cachesim/trace_reader.h"

namespace kv::cachesim {
namespace {

using nlohmann::json;

constexpr std::uint32_t kTokensMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kIdsMax = 1U << 28U;
constexpr std::array<const char*, 5> kCategories = {"sys_prompt", "passages_ids", "history",
                                                    "web_search", "user_input"};
// Of the files with lengths: N_name.jsonl, {"<one>_id", "token_length"} a line.
constexpr std::array<std::array<const char*, 2>, 5> kLengthFiles = {
    {{"1_sys_prompt", "sys_prompt_id"},
     {"2_passages", "passage_id"},
     {"3_history", "history_id"},
     {"4_user_input", "user_input_id"},
     {"5_web_search", "web_search_id"}}};

class RagpulseReader {
 public:
  explicit RagpulseReader(Reading& reading) : reading_(reading) {}

  Result<void> read_lengths(const std::filesystem::path& folder) {
    for (const auto& [name, field] : kLengthFiles) {
      KV_TRY(OpenedFile file, open_length_file(folder, name));
      ReadOptions options;
      options.strict = true;
      TraceBuilder unused;
      Reading reading{options, file, unused};
      KV_TRY_VOID(for_each_line(reading, [&, id_field = field](std::string_view line) {
        const json object = json::parse(line, nullptr, false);
        const auto id = object.is_object() ? whole_field(object, id_field, kIdsMax) : std::nullopt;
        const auto length =
            object.is_object() ? whole_field(object, "token_length", kTokensMax) : std::nullopt;
        if (!id || !length) return std::string("no id with a token_length");
        if (lengths_.size() <= *id) lengths_.resize(*id + 1, 0);
        lengths_[*id] = static_cast<std::uint32_t>(*length);
        return std::string();
      }));
    }
    return {};
  }

  LineVerdict take(std::string_view line) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) return "no JSON object";
    const auto ids = object.find("hash_ids");
    if (ids == object.end() || !ids->is_object()) return "hash_ids is not an object";
    const auto time = time_field(object, "timestamp", 1000);
    if (!time) return "timestamp is not a time";
    const auto input = whole_field(object, "input_length", kTokensMax);
    if (!input) return "input_length is not a number of tokens";
    Arrival arrival;
    arrival.request.time_ms = *time;
    arrival.request.input_tokens = static_cast<std::uint32_t>(*input);
    arrival.request.output_tokens =
        static_cast<std::uint32_t>(whole_field(object, "output_length", kTokensMax).value_or(0));
    for (const char* category : kCategories) {
      const auto found = ids->find(category);
      if (found == ids->end()) continue;
      if (!found->is_array()) return std::string(category) + " is not a list";
      for (const json& id : *found) {
        const auto number = whole_number(id, kIdsMax);
        if (!number || *number >= lengths_.size() || lengths_[*number] == 0) {
          return std::string(category) + " holds an id without a token length";
        }
        arrival.ids.push_back(static_cast<std::uint32_t>(*number));
      }
    }
    arrival.place = arrivals_.size();
    arrivals_.push_back(std::move(arrival));
    return {};
  }

  Result<void> finish() {
    std::ranges::sort(arrivals_, {},
                      [](const Arrival& a) { return std::tuple(a.request.time_ms, a.place); });
    const std::uint64_t start = arrivals_.empty() ? 0 : arrivals_.front().request.time_ms;
    Trace& trace = reading_.builder.trace();
    std::vector<std::uint64_t> identities;
    std::vector<std::uint32_t> blocks;
    for (Arrival& arrival : arrivals_) {
      arrival.request.time_ms -= start;
      identities.assign(arrival.ids.begin(), arrival.ids.end());
      if (!reading_.builder.add(arrival.request, identities)) return kTooManyBlocks;
      trace.expand(trace.requests.back(), blocks);
      trace.block_size.resize(trace.unique_blocks(), 0);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        trace.block_size[blocks[i]] = lengths_[arrival.ids[i]];
      }
    }
    return {};
  }

 private:
  struct Arrival {
    std::size_t place = 0;  // in the file
    TraceRequest request;
    std::vector<std::uint32_t> ids;
  };

  static Result<OpenedFile> open_length_file(const std::filesystem::path& folder,
                                             const std::string& name) {
    for (const char* ending : {".jsonl.gz", ".jsonl", ".jsonl.xz", ".jsonl.zst"}) {
      auto file = open_file((folder / (name + ending)).string());
      if (file || file.error().code != ErrorCode::not_found) return file;
    }
    return Error{ErrorCode::not_found,
                 "the files with token lengths (1_sys_prompt.jsonl.gz and so on) are not beside it",
                 "FILE"};
  }

  Reading& reading_;
  std::vector<std::uint32_t> lengths_;  // by id; 0: unknown
  std::vector<Arrival> arrivals_;
};

}  // namespace

Result<void> read_ragpulse(Reading& reading, const std::string& path) {
  RagpulseReader reader(reading);
  KV_TRY_VOID(reader.read_lengths(std::filesystem::path(path).parent_path()));
  KV_TRY_VOID(for_each_line(reading, [&](std::string_view line) { return reader.take(line); }));
  return reader.finish();
}

}  // namespace kv::cachesim
