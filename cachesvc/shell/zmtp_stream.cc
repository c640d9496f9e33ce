#include "cachesvc/shell/zmtp_stream.h"

#include <algorithm>
#include <string_view>

namespace kv::shell {
namespace {

constexpr std::uint32_t kGreetingBytes = 64;
constexpr std::uint32_t kVersionAt = 10;  // behind the signature: FF, eight bytes, 7F
constexpr auto kSignatureFirst = std::byte{0xFF};
constexpr auto kMajorMin = std::byte{3};

constexpr std::uint8_t kMore = 1;
constexpr std::uint8_t kLong = 2;
constexpr std::uint8_t kCommand = 4;

constexpr std::string_view kReady("\5READY");
constexpr std::string_view kIdentity("Identity");

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return (x | 0x20) == (y | 0x20); });
}

}  // namespace

bool ZmtpStream::take(std::span<const std::byte> bytes) {
  while (!bytes.empty() && part_ != Part::foreign) {
    if (part_ != Part::body) {
      if (!take_one(bytes.front())) return false;
      bytes = bytes.subspan(1);
      continue;
    }
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
    if ((flags_ & kCommand) != 0) {
      command_.insert(command_.end(), bytes.begin(),
                      bytes.begin() + static_cast<std::ptrdiff_t>(count));
    }
    left_ -= count;
    bytes = bytes.subspan(count);
    if (left_ == 0 && !end_body()) return false;
  }
  return true;
}

bool ZmtpStream::take_one(std::byte byte) {
  if (part_ == Part::greeting) {
    const bool is_foreign = (position_ == 0 && byte != kSignatureFirst) ||
                            (position_ == kVersionAt && byte < kMajorMin);
    if (is_foreign) {
      part_ = Part::foreign;
    } else if (++position_ == kGreetingBytes) {
      part_ = Part::flags;
    }
    return true;
  }
  if (part_ == Part::flags) {
    flags_ = std::to_integer<std::uint8_t>(byte);
    size_bytes_left_ = (flags_ & kLong) != 0 ? 8 : 1;
    left_ = 0;
    part_ = Part::size;
    return true;
  }
  left_ = left_ << 8U | std::to_integer<std::uint64_t>(byte);
  return --size_bytes_left_ > 0 || begin_body();
}

bool ZmtpStream::begin_body() {
  part_ = Part::body;
  // libzmq takes some commands for frames of a message; no protocol has more of a command.
  if ((flags_ & kCommand) != 0) {
    if ((flags_ & kMore) != 0 || left_ > kCommandBytesMax) return false;
  } else {
    ++frames_;
    // One frame's own length is libzmq's to judge; the sum cannot overflow before it is too long.
    message_bytes_ += std::min(left_, kMessageBytesMax + 1);
    if (frames_ > kFramesMax || message_bytes_ > kMessageBytesMax) return false;
  }
  return left_ > 0 || end_body();
}

bool ZmtpStream::end_body() {
  part_ = Part::flags;
  if ((flags_ & kCommand) != 0) {
    const bool is_refused = names_itself();
    std::vector<std::byte>().swap(command_);
    return !is_refused;
  }
  if ((flags_ & kMore) != 0) return true;
  frames_ = 0;
  message_bytes_ = 0;
  return true;
}

// READY with an Identity that is not empty. Properties: the length of the
// name in a byte, the name, the length of the value in four, the value.
bool ZmtpStream::names_itself() const {
  std::string_view rest(reinterpret_cast<const char*>(command_.data()), command_.size());
  if (!rest.starts_with(kReady)) return false;
  rest.remove_prefix(kReady.size());
  while (!rest.empty()) {
    const auto name_bytes = static_cast<unsigned char>(rest.front());
    if (rest.size() < std::size_t{1} + name_bytes + 4) return false;  // libzmq refuses it
    const std::string_view name = rest.substr(1, name_bytes);
    rest.remove_prefix(std::size_t{1} + name_bytes);
    std::uint64_t value_bytes = 0;
    for (int i = 0; i < 4; ++i) {
      value_bytes =
          value_bytes << 8U | static_cast<unsigned char>(rest[static_cast<std::size_t>(i)]);
    }
    rest.remove_prefix(4);
    if (equal_ignoring_case(name, kIdentity) && value_bytes > 0) return true;
    if (rest.size() < value_bytes) return false;
    rest.remove_prefix(static_cast<std::size_t>(value_bytes));
  }
  return false;
}

}  // namespace kv::shell
