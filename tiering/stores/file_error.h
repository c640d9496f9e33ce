// An errno of a file operation as an Error: no space is exhausted, everything else unavailable. The
// field says which errno.
#pragma once

#include <cerrno>
#include <cstring>
#include <string_view>

#include "allocator/base/result.h"

namespace kv {

[[nodiscard]] inline ErrorCode file_error_code(int error_number) {
  const bool no_space = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return no_space ? ErrorCode::exhausted : ErrorCode::unavailable;
}
[[nodiscard]] inline Error file_error(int error_number, std::string_view reason) {
  const char* const text = ::strerrordesc_np(error_number);  // static storage, for any thread
  return Error{file_error_code(error_number), reason, text == nullptr ? "" : text};
}

}  // namespace kv
