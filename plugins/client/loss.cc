#include "plugins/client/loss.h"

#include <filesystem>

#include "plugins/client/default_dir.h"

namespace kv::client {

std::optional<LossText> loss_text(const Error& error, const std::string& dir,
                                  const std::string& endpoint) {
  const auto addresses = find_addresses(dir, endpoint);
  if (!addresses) return std::nullopt;
  const std::string where = " on " + addresses->service;
  const std::string start =
      "cachesvc serve " +
      (endpoint.empty() ? "--dir " + std::filesystem::path(addresses->attach).parent_path().string()
                        : "--endpoint " + endpoint);
  const std::string service = "the service" + where;
  if (error.code == ErrorCode::unavailable) {
    if (error.reason == kNobodyAnswers) {
      return LossText{"no service answers" + where, "start one: " + start};
    }
    if (error.reason != kAttachClosed && error.reason != kServiceGone) return std::nullopt;
    return LossText{service + " ended meanwhile", "start it (" + start + ") and run this again"};
  }
  if (error.code != ErrorCode::stale || error.field == "epoch") return std::nullopt;
  if (error.reason == kServiceRestarted) {
    return LossText{service + " restarted meanwhile", "run this again"};
  }
  return LossText{service + " gave this client up, as after a pause longer than client.lease",
                  "run this again"};
}

std::string_view limit_key(const Error& error) {
  const std::string_view last_word = error.reason.substr(error.reason.rfind(' ') + 1);
  const std::string_view key = error.field.empty() ? last_word : error.field;
  const bool is_key = error.code == ErrorCode::exhausted && key.starts_with("client.");
  return is_key ? key : std::string_view();
}

}  // namespace kv::client
