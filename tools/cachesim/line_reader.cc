#include "tools/cachesim/line_reader.h"

#include <cstring>

namespace kv::cachesim {

Result<bool> LineReader::next(std::string_view& line) {
  line_.clear();
  for (;;) {
    if (begin_ == end_) {
      begin_ = 0;
      KV_TRY(end_, source_.read(buffer_));
      if (end_ == 0) break;
    }
    const char* from = buffer_.data() + begin_;
    const auto* stop = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    const std::size_t count =
        stop == nullptr ? end_ - begin_ : static_cast<std::size_t>(stop - from);
    if (line_.size() + count > kLineBytesMax) {
      return Error{ErrorCode::too_large, "a line is longer than 64 MiB", "FILE"};
    }
    line_.append(from, count);
    begin_ += count + (stop == nullptr ? 0 : 1);
    if (stop != nullptr) {
      ++number_;
      if (line_.ends_with('\r')) line_.pop_back();
      line = line_;
      return true;
    }
  }
  if (line_.empty()) return false;
  ++number_;
  line = line_;
  return true;
}

}  // namespace kv::cachesim
