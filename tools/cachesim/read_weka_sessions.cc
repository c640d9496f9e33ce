// Weka traces as an archive of sessions: one JSON file each, {"block_size", "requests": [...]}, a
// request {"t" (seconds), "in", "out", "hash_ids"}, or {"type": "subagent", "t", "requests"}, whose
// times count from its own start.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tools/cachesim/tar_reader.h"
#include "tools/cachesim/weka_sessions.h"

namespace kv::cachesim {
namespace {

using nlohmann::json;

constexpr std::uint32_t kTokensMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kIdMax = 1U << 30U;

struct SessionRequest {
  TraceRequest request;
  std::vector<BlockRun> runs;
};

struct Session {
  std::string name;
  std::uint32_t block_tokens = 0;
  std::vector<SessionRequest> requests;
};

LineVerdict take_request(const json& object, std::uint64_t start_ms, Session& session) {
  const auto time = time_field(object, "t", 1000);
  const auto input = whole_field(object, "in", kTokensMax);
  const auto ids = object.find("hash_ids");
  if (!time) return "t is not a time";
  if (!input) return "in is not a number of tokens";
  if (ids == object.end() || !ids->is_array()) return "hash_ids is not a list";
  SessionRequest taken;
  taken.request.time_ms = start_ms + *time;
  taken.request.input_tokens = static_cast<std::uint32_t>(*input);
  taken.request.output_tokens =
      static_cast<std::uint32_t>(whole_field(object, "out", kTokensMax).value_or(0));
  std::vector<BlockRun>& runs = taken.runs;
  for (const json& id : *ids) {
    const auto number = whole_number(id, kIdMax);
    if (!number) return "hash_ids holds something that is not a whole number";
    if (!runs.empty() && runs.back().first + runs.back().count == *number) {
      ++runs.back().count;
    } else {
      runs.push_back({static_cast<std::uint32_t>(*number), 1});
    }
  }
  session.requests.push_back(std::move(taken));
  return {};
}

LineVerdict take_session(const std::string& content, Session& session) {
  const json object = json::parse(content, nullptr, false);
  if (!object.is_object()) return "no JSON object";
  const auto tokens = whole_field(object, "block_size", 1U << 20U);
  if (!tokens || *tokens == 0) return "block_size is not a number of tokens";
  session.block_tokens = static_cast<std::uint32_t>(*tokens);
  const auto requests = object.find("requests");
  if (requests == object.end() || !requests->is_array()) return "requests is not a list";
  for (const json& request : *requests) {
    if (!request.is_object()) return "a request is not an object";
    const auto inner = request.find("requests");
    if (inner == request.end()) {
      if (LineVerdict verdict = take_request(request, 0, session); !verdict.empty()) return verdict;
      continue;
    }
    const auto start = time_field(request, "t", 1000);
    if (!start || !inner->is_array()) return "a sub-agent has no t, or requests is not a list";
    for (const json& of_agent : *inner) {
      if (!of_agent.is_object()) return "a request is not an object";
      if (LineVerdict verdict = take_request(of_agent, *start, session); !verdict.empty()) {
        return verdict;
      }
    }
  }
  return {};
}

// In the order of their names, whatever the archive's is.
Result<std::vector<Session>> read_sessions(Reading& reading) {
  Trace& trace = reading.builder.trace();
  TarReader archive(*reading.file.bytes);
  std::vector<Session> sessions;
  std::string name;
  std::string content;
  for (;;) {
    KV_TRY(const bool more, archive.next(name, content));
    if (!more) break;
    if (!name.ends_with(".json")) continue;
    ++trace.lines;
    if (reading.options.progress) {
      reading.options.progress(reading.file.bytes->file_position(), reading.file.file_bytes);
    }
    Session session;
    session.name = name;
    LineVerdict verdict = take_session(content, session);
    if (verdict.empty() && !sessions.empty() &&
        sessions.front().block_tokens != session.block_tokens) {
      verdict = "block_size differs from that of the sessions before";
    }
    if (verdict.empty()) {
      sessions.push_back(std::move(session));
    } else {
      std::string reason = name;
      reason.append(": ").append(verdict);
      KV_TRY_VOID(count_broken(reading.options, trace, trace.lines, reason));
    }
  }
  std::ranges::sort(sessions, {}, &Session::name);
  return sessions;
}

}  // namespace

Result<void> read_weka_sessions(Reading& reading) {
  KV_TRY(std::vector<Session> sessions, read_sessions(reading));
  if (sessions.size() > reading.options.sessions) sessions.resize(reading.options.sessions);
  WekaSessions all;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    for (SessionRequest& request : sessions[i].requests) {
      all.add(static_cast<std::uint32_t>(i), request.request, std::move(request.runs));
    }
  }
  reading.builder.trace().block_tokens = sessions.empty() ? 0 : sessions.front().block_tokens;
  return all.finish(reading);
}

}  // namespace kv::cachesim
