// ZmtpStream: follows what a peer sends, as far as libzmq 4.3.4 does not keep it within bounds: it
// counts neither the frames of a message nor their bytes together, and ends the process when a peer
// names itself as a later one will be named. Source: ZMTP 3.1 (RFC 37), greeting and framing.
// Owner: one connection. Threads: one at a time. Cost: O(frames), not bytes, after the handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kv::shell {

class ZmtpStream {
 public:
  static constexpr std::uint32_t kFramesMax = 16;               // of a message
  static constexpr std::uint64_t kMessageBytesMax = 2U << 20U;  // of its frames together
  static constexpr std::uint64_t kCommandBytesMax = 1'024;

  // False: the peer is to be cut off. Peers of ZMTP 1 and 2 are left to libzmq, which refuses them.
  [[nodiscard]] bool take(std::span<const std::byte> bytes);

 private:
  enum class Part : std::uint8_t { greeting, flags, size, body, foreign };

  bool take_one(std::byte byte);
  bool begin_body();
  bool end_body();
  [[nodiscard]] bool names_itself() const;

  Part part_ = Part::greeting;
  std::uint32_t position_ = 0;  // of the greeting
  std::uint8_t flags_ = 0;
  std::uint8_t size_bytes_left_ = 0;
  std::uint64_t left_ = 0;  // of the body
  std::uint32_t frames_ = 0;
  std::uint64_t message_bytes_ = 0;
  std::vector<std::byte> command_;  // the body of a command, as far as it is kept
};

}  // namespace kv::shell
