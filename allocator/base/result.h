// Result<T>: a value or an Error, never ignored. The names are a subset of std::expected's.
// Errors are a closed set (ErrorCode), each with a static text and, where it helps, the name of the
// offending field; making one never allocates.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "allocator/base/check.h"

namespace kv {

enum class ErrorCode : std::uint8_t {
  ok,
  not_found,
  exists,
  exhausted,  // retry later
  busy,       // retry after the hint
  too_large,  // never possible
  stale,      // from an older boot, lease, epoch or generation: attach again
  deadline,
  corrupt,
  invalid,
  unsupported,
  unavailable,
  denied,
  mismatch,  // `field` names what differs
};
inline constexpr std::uint8_t kErrorCodeCount = 14;

// The word used in logs, JSON and messages.
[[nodiscard]] constexpr std::string_view error_name(ErrorCode code) {
  constexpr std::string_view kNames[kErrorCodeCount] = {
      "ok",       "not_found", "exists",  "exhausted",   "busy",        "too_large", "stale",
      "deadline", "corrupt",   "invalid", "unsupported", "unavailable", "denied",    "mismatch"};
  const auto index = static_cast<std::uint8_t>(code);
  return index < kErrorCodeCount ? kNames[index] : std::string_view("unknown");
}

struct Error {
  ErrorCode code = ErrorCode::invalid;
  std::string_view reason;  // static storage
  std::string_view field;   // static storage; empty where no field is to blame
  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): values and errors convert, as in std::expected
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): values and errors convert, as in std::expected
  Result(Error error) : state_(std::in_place_index<1>, error) {
    KV_CHECK(error.code != ErrorCode::ok);
  }
  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] T& value() & {
    KV_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] const T& value() const& {
    KV_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] T&& value() && {
    KV_CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  [[nodiscard]] const Error& error() const {
    KV_CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): values and errors convert, as in std::expected
  Result(Error error) : error_(error) { KV_CHECK(error.code != ErrorCode::ok); }
  [[nodiscard]] bool has_value() const { return error_.code == ErrorCode::ok; }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const Error& error() const {
    KV_CHECK(!has_value());
    return error_;
  }

 private:
  Error error_{ErrorCode::ok, {}, {}};
};

#define KV_CONCAT_INNER(a, b) a##b
#define KV_CONCAT(a, b) KV_CONCAT_INNER(a, b)
// KV_TRY(const auto x, f()); declares x from the value, or returns the error upward.
#define KV_TRY(declaration, ...) \
  KV_TRY_NAMED(KV_CONCAT(kv_result_, __LINE__), declaration, __VA_ARGS__)
#define KV_TRY_NAMED(name, declaration, ...)  \
  auto name = (__VA_ARGS__);                  \
  if (!name.has_value()) return name.error(); \
  declaration = std::move(name).value()
// The same for Result<void>.
#define KV_TRY_VOID(...)                                          \
  do {                                                            \
    if (auto kv_result = (__VA_ARGS__); !kv_result.has_value()) { \
      return kv_result.error();                                   \
    }                                                             \
  } while (false)

}  // namespace kv
