// What to say when the service was lost, or took no more clients: the library's errors speak to who
// wrote a program, these texts to who runs it. Owner: the caller. Threads: any, as default_dir.
// Cost: O(1).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "allocator/base/result.h"

namespace kv::client {

// Reasons of the library's own errors.
inline constexpr std::string_view kNobodyAnswers =
    "no service answers there: start it (cachesvc serve)";
inline constexpr std::string_view kAttachClosed =
    "the service closed the attach socket: attach again";
inline constexpr std::string_view kServiceGone = "the service is gone: attach again once it runs";
inline constexpr std::string_view kServiceRestarted = "service restarted: attach again";

struct LossText {
  std::string what;    // "no service answers on ipc://..."
  std::string remedy;  // "start one: cachesvc serve --dir ..."
};
// Nothing when the error is no loss of the service. `dir`, `endpoint`: as for find_addresses.
[[nodiscard]] std::optional<LossText> loss_text(const Error& error, const std::string& dir,
                                                const std::string& endpoint);

// The configuration key of the limit on clients that refused this one; empty when none did.
// Refusals of the attach socket have no field, but end with it.
[[nodiscard]] std::string_view limit_key(const Error& error);

}  // namespace kv::client
