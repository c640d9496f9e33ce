#include "cachesvc/shell/quantity.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

#include "cachesvc/shell/nearest.h"

namespace kv::shell {
namespace {

TEST(Quantity, ASizeIsAWholeNumberAndABinaryUnit) {
  EXPECT_EQ(parse_bytes("1B").value(), 1U);
  EXPECT_EQ(parse_bytes("3KiB").value(), 3'072U);
  EXPECT_EQ(parse_bytes("64MiB").value(), 67'108'864U);
  EXPECT_EQ(parse_bytes("2GiB").value(), 2'147'483'648U);
  EXPECT_EQ(parse_bytes("1TiB").value(), 1'099'511'627'776U);
}

TEST(Quantity, ZeroNeedsNoUnit) {
  EXPECT_EQ(parse_bytes("0").value(), 0U);
  EXPECT_EQ(parse_duration("0").value(), Duration(0));
}

TEST(Quantity, OtherThingsAreRefusedWithWhatIsMissing) {
  EXPECT_EQ(parse_bytes("64").error().reason, "a size needs a unit (B, KiB, MiB, GiB, TiB)");
  EXPECT_EQ(parse_bytes("64MB").error().reason,
            "unknown unit of a size (known: B, KiB, MiB, GiB, TiB)");
  EXPECT_EQ(parse_bytes("1.5GiB").error().reason, "must be a whole number");
  EXPECT_EQ(parse_bytes("").error().reason, "does not start with a number");
  EXPECT_EQ(parse_bytes("-1MiB").error().reason, "does not start with a number");
  EXPECT_EQ(parse_bytes(" 1MiB").error().reason, "does not start with a number");
  EXPECT_EQ(parse_bytes("1 MiB").error().code, ErrorCode::invalid);
  EXPECT_EQ(parse_duration("10").error().reason, "a duration needs a unit (ns, us, ms, s, m, h)");
  EXPECT_EQ(parse_duration("10sec").error().reason,
            "unknown unit of a duration (known: ns, us, ms, s, m, h)");
  EXPECT_EQ(parse_count("5x").error().reason, "must be a whole number");
  EXPECT_EQ(parse_count("").error().reason, "must be a whole number");
}

TEST(Quantity, WhatDoesNotFitIsTooLarge) {
  // 2^64 bytes = 16,777,216 TiB.
  EXPECT_EQ(parse_bytes("16777215TiB").value(), 16'777'215ULL << 40U);
  EXPECT_EQ(parse_bytes("16777216TiB").error().code, ErrorCode::too_large);
  EXPECT_EQ(parse_bytes("99999999999999999999B").error().code, ErrorCode::too_large);
  EXPECT_EQ(parse_duration("2562048h").error().code, ErrorCode::too_large);  // over 2^63 ns
  EXPECT_EQ(parse_count("18446744073709551616").error().code, ErrorCode::too_large);
}

TEST(Quantity, WhatIsWrittenIsReadBackTheSame) {
  for (const std::uint64_t bytes :
       {0ULL, 1ULL, 1'023ULL, 1'024ULL, 1'536ULL, 67'108'864ULL, 18'446'744'073'709'551'615ULL}) {
    EXPECT_EQ(parse_bytes(format_bytes(bytes)).value(), bytes);
  }
  EXPECT_EQ(format_bytes(1'536), "1536B");
  EXPECT_EQ(format_bytes(67'108'864), "64MiB");
  EXPECT_EQ(format_duration(std::chrono::seconds(10)), "10s");
  EXPECT_EQ(format_duration(std::chrono::seconds(120)), "2m");
  EXPECT_EQ(format_duration(std::chrono::milliseconds(1'500)), "1500ms");
}

TEST(NearestName, IsTheOneWithTheFewestChanges) {
  constexpr std::array<std::string_view, 3> kNames = {"device.bytes", "host.bytes", "disk.io"};
  EXPECT_EQ(nearest_name("device.byte", kNames), "device.bytes");
  EXPECT_EQ(nearest_name("hots.bytes", kNames), "host.bytes");
  EXPECT_EQ(nearest_name("CACHESVC_DISK__IOO", kNames), "disk.io");
  EXPECT_EQ(nearest_name("DISK_IO", kNames), "disk.io");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(Quantity, RoundsForPeopleDownToOneDecimal) {
  EXPECT_EQ(round_bytes(0), "0B");
  EXPECT_EQ(round_bytes(1'023), "1023B");
  EXPECT_EQ(round_bytes(1'536), "1.5KiB");
  EXPECT_EQ(round_bytes((std::uint64_t{1} << 30U) - 1), "1023.9MiB");
  EXPECT_EQ(round_bytes(std::uint64_t{900} << 40U), "900.0TiB");
  EXPECT_EQ(round_bytes(UINT64_MAX), "16777215.9TiB");
}

}  // namespace
}  // namespace kv::shell
