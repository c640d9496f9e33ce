#include "cachesvc/shell/zmtp_stream.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kv::shell {
namespace {

using Bytes = std::string;

// Of ZMTP 3.1: signature, version, mechanism, as-server, filler.
Bytes greeting() {
  Bytes bytes("\xFF\0\0\0\0\0\0\0\x01\x7F\x03\x01NULL", 16);
  bytes.resize(64, '\0');
  return bytes;
}

Bytes frame(std::uint8_t flags, const Bytes& body) {
  Bytes bytes;
  const bool is_long = body.size() > 255;
  bytes.push_back(static_cast<char>(flags | (is_long ? 2 : 0)));
  for (int shift = is_long ? 56 : 0; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(body.size() >> static_cast<unsigned>(shift)));
  }
  return bytes + body;
}

Bytes property(const Bytes& name, const Bytes& value) {
  Bytes bytes(1, static_cast<char>(name.size()));
  bytes += name;
  bytes += Bytes(3, '\0');
  bytes.push_back(static_cast<char>(value.size()));
  return bytes + value;
}

Bytes ready(const Bytes& properties) { return frame(4, "\5READY" + properties); }

Bytes empty_part() { return frame(1, ""); }

// Both at once and byte by byte: the answer must not depend on how the bytes come in.
bool is_kept(const Bytes& bytes) {
  const auto all = std::as_bytes(std::span(bytes.data(), bytes.size()));
  ZmtpStream at_once, in_pieces;
  const bool kept = at_once.take(all);
  bool kept_in_pieces = true;
  for (std::size_t i = 0; i < all.size() && kept_in_pieces; ++i) {
    kept_in_pieces = in_pieces.take(all.subspan(i, 1));
  }
  EXPECT_EQ(kept, kept_in_pieces);
  return kept;
}

Bytes times(std::size_t count, const Bytes& part) {
  Bytes all;
  for (std::size_t i = 0; i < count; ++i) all += part;
  return all;
}

TEST(ZmtpStream, LetsAnOrdinaryPeerPass) {
  const Bytes hello =
      greeting() + ready(property("Socket-Type", "DEALER") + property("Identity", ""));
  EXPECT_TRUE(is_kept(hello));
  EXPECT_TRUE(is_kept(hello + times(1'000, frame(0, Bytes(300, 'x')))));
  EXPECT_TRUE(is_kept(hello + times(1'000, frame(4, "\4PING" + Bytes(2, '\0')))));
  EXPECT_TRUE(is_kept(hello + frame(0, Bytes(1U << 20U, 'x')) + frame(0, "next")));
}

TEST(ZmtpStream, AMessageHasAtMostSixteenFrames) {
  const Bytes last = frame(0, "");
  EXPECT_TRUE(is_kept(greeting() + times(50, times(15, empty_part()) + last)));
  EXPECT_FALSE(is_kept(greeting() + times(16, empty_part()) + last));
  // A command between its frames begins no new one.
  EXPECT_FALSE(is_kept(greeting() + times(17, empty_part() + frame(4, "\4PING"))));
}

TEST(ZmtpStream, AMessageHasAtMostTwoMebibytesInAllItsFrames) {
  const Bytes half = frame(1, Bytes(1U << 20U, 'x'));
  EXPECT_TRUE(is_kept(greeting() + half + frame(0, Bytes(1U << 20U, 'x'))));
  EXPECT_FALSE(is_kept(greeting() + half + half + frame(0, "x")));
  // By what it says of itself, before any of it comes; also when the sum would overflow.
  EXPECT_FALSE(is_kept(greeting() + Bytes("\x02") + Bytes(8, '\xFF')));
  EXPECT_FALSE(is_kept(greeting() + half + Bytes("\x02") + Bytes(8, '\xFF')));
}

// libzmq hands SUBSCRIBE to the application, as a frame of a message that goes on.
TEST(ZmtpStream, ACommandIsShortAndHasNoMore) {
  EXPECT_TRUE(is_kept(greeting() + frame(4, "\x09SUBSCRIBE")));
  EXPECT_FALSE(is_kept(greeting() + frame(5, "\x09SUBSCRIBE")));
  EXPECT_TRUE(is_kept(greeting() + frame(4, Bytes(1'024, 'x'))));
  EXPECT_FALSE(is_kept(greeting() + frame(4, Bytes(1'025, 'x'))));
}

TEST(ZmtpStream, APeerThatNamesItselfIsCutOff) {
  for (const char* name : {"Identity", "identity", "IDENTITY"}) {
    EXPECT_FALSE(
        is_kept(greeting() + ready(property("Socket-Type", "DEALER") + property(name, "x"))));
    EXPECT_TRUE(is_kept(greeting() + ready(property(name, ""))));
  }
  EXPECT_TRUE(is_kept(greeting() + ready(property("X-Identity", "x"))));
  // Too long to tell what is in it.
  EXPECT_FALSE(is_kept(greeting() + ready(times(8, property("X", Bytes(127, 'x'))))));
  EXPECT_TRUE(is_kept(greeting() + ready(times(7, property("X", Bytes(127, 'x'))))));
}

TEST(ZmtpStream, WhatIsNoZmtpOfThisVersionIsLeftToLibzmq) {
  EXPECT_TRUE(is_kept(Bytes("\x01\x00\x04\x00", 4) + times(50, empty_part())));
  Bytes old = greeting();
  old[10] = 1;
  EXPECT_TRUE(is_kept(old + times(50, empty_part())));
  for (std::size_t cut = 0; cut < 40; ++cut) {
    const Bytes whole = greeting() + ready(property("Identity", ""));
    EXPECT_TRUE(is_kept(whole.substr(0, whole.size() - cut)));
    Bytes lying = ready(property("Identity", "ab") + property("X", "y"));
    lying.resize(lying.size() - std::min(cut, lying.size() - 2));
    lying[1] = static_cast<char>(lying.size() - 2);
    (void)is_kept(greeting() + lying);  // no read outside: a sanitizer looks on
  }
}

}  // namespace
}  // namespace kv::shell
