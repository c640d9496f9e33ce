#include "tools/cachesim/tar_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace kv::cachesim {
namespace {

constexpr std::size_t kRecordBytes = 512;
using Record = std::array<char, kRecordBytes>;

std::string_view field(const Record& record, std::size_t at, std::size_t size) {
  const std::string_view whole(record.data() + at, size);
  return whole.substr(0, std::min(whole.find('\0'), size));
}

std::optional<std::uint64_t> octal(std::string_view text) {
  std::uint64_t value = 0;
  bool any = false;
  for (const char c : text) {
    if (c == ' ' && !any) continue;
    if (c == ' ') break;
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<std::uint64_t>(c - '0');
    any = true;
  }
  if (!any) return std::nullopt;
  return value;
}

// The sum of the header's bytes, its own field taken as blanks.
std::uint64_t header_sum(const Record& record) {
  constexpr std::size_t kSumAt = 148;
  constexpr std::size_t kSumBytes = 8;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kRecordBytes; ++i) {
    const bool own = i >= kSumAt && i < kSumAt + kSumBytes;
    sum += own ? ' ' : static_cast<unsigned char>(record[i]);
  }
  return sum;
}

}  // namespace

Result<bool> TarReader::read_all(char* into, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    KV_TRY(const std::size_t more, source_.read(std::span(into + done, bytes - done)));
    if (more == 0 && done == 0) return false;
    if (more == 0) return Error{ErrorCode::corrupt, "the archive is cut off", "FILE"};
    done += more;
  }
  return true;
}

Result<bool> TarReader::next(std::string& name, std::string& content) {
  constexpr Error kDamaged = {ErrorCode::corrupt, "the archive is damaged", "FILE"};
  for (;;) {
    Record record;
    KV_TRY(const bool more, read_all(record.data(), record.size()));
    if (!more || record[0] == '\0') return false;  // an empty record ends the archive
    const auto size = octal(field(record, 124, 12));
    const auto sum = octal(field(record, 148, 8));
    if (!size || !sum || *sum != header_sum(record)) return kDamaged;
    if (*size > kFileBytesMax) {
      return Error{ErrorCode::too_large, "a file in the archive is larger than 256 MiB", "FILE"};
    }
    const char type = record[156];
    name = std::string(field(record, 0, 100));
    content.resize(*size);
    const std::size_t padding = (kRecordBytes - *size % kRecordBytes) % kRecordBytes;
    if (*size > 0) {
      KV_TRY(const bool whole, read_all(content.data(), content.size()));
      if (!whole) return Error{ErrorCode::corrupt, "the archive is cut off", "FILE"};
    }
    if (padding > 0) {
      KV_TRY(const bool padded, read_all(record.data(), padding));
      if (!padded) return Error{ErrorCode::corrupt, "the archive is cut off", "FILE"};
    }
    if (type == '0' || type == '\0') return true;
  }
}

}  // namespace kv::cachesim
