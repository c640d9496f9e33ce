// What people write behind options: times and lists of tokens.
#include "plugins/client/argument_text.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/plugins/client/temporary_dir.h"

namespace kv::client {
namespace {

using std::chrono::milliseconds;

TEST(ArgumentText, ATimeNeedsANumberAndAUnit) {
  EXPECT_EQ(parse_time("1ms").value(), milliseconds(1));
  EXPECT_EQ(parse_time("250ms").value(), milliseconds(250));
  EXPECT_EQ(parse_time("5s").value(), milliseconds(5'000));
  EXPECT_EQ(parse_time("60m").value(), milliseconds(3'600'000));
  EXPECT_EQ(parse_time("1h").value(), milliseconds(3'600'000));
  EXPECT_EQ(parse_time("1000us").value(), milliseconds(1));
  EXPECT_EQ(parse_time("1000001ns").value(), milliseconds(2));
  for (const char* text : {"", "5", "999us", "999999ns", "2h", "3600000000001ns", "s", "0s", "-1s",
                           "1.5s", "61m", "3600001ms", "5 s", "5sec", "99999999999999999999s"}) {
    EXPECT_EQ(parse_time(text).error().code, ErrorCode::invalid) << text;
  }
}

TEST(ArgumentText, TokensStandBetweenCommasOrSpacesOrInAJsonList) {
  const std::vector<Token> expected{1, 403, 4'294'967'295};
  for (const char* text : {"1,403,4294967295", " 1, 403, 4294967295 ", "1 403 4294967295\n",
                           "[1, 403, 4294967295]", "[ 1,403 , 4294967295 ]\n"}) {
    EXPECT_EQ(parse_tokens(text).value(), expected) << text;
  }
  for (const char* text : {"", " \n", "[]", "[ ]"}) {
    EXPECT_TRUE(parse_tokens(text).value().empty()) << text;
  }
}

TEST(ArgumentText, WhatIsNoListOfTokensIsInvalid) {
  for (const char* text : {"1,", ",1", "1,,2", "1 , , 2", "a", "1;2", "-1", "1,-1", "4294967296",
                           "1.5", "[1", "1]", "[1],", "[[1]]", "+1", "0x10", "1e3"}) {
    EXPECT_EQ(parse_tokens(text).error().code, ErrorCode::invalid) << text;
  }
  EXPECT_EQ(parse_tokens(std::string("1\0002", 3)).error().code, ErrorCode::invalid);
}

TEST(ArgumentText, AFileOfTokensIsReadAndItsLengthIsBounded) {
  const test::TemporaryDir dir;
  const std::string file = dir.path() + "/tokens.json";
  std::ofstream(file) << "[1, 2, 3]\n";
  EXPECT_EQ(read_tokens("@" + file).value(), (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(read_tokens("4,5").value(), (std::vector<Token>{4, 5}));
  for (const std::string& name : {dir.path() + "/missing", dir.path()}) {
    EXPECT_EQ(read_tokens("@" + name).error().code, ErrorCode::not_found) << name;
  }
  EXPECT_EQ(read_tokens("@/dev/zero").error().code, ErrorCode::too_large) << "it never ends";
}

TEST(ArgumentText, ACountIsDigitsWithinItsBounds) {
  for (const char* text : {"3", "64", "100", "007"}) {
    EXPECT_EQ(problem_of_count(text, 3, 100), "") << text;
  }
  for (const char* text : {"", "2", "101", "-3", "-18446744073709551552", "+4", "4 ", " 4", "4.0",
                           "0x4", "18446744073709551680"}) {
    EXPECT_EQ(problem_of_count(text, 3, 100),
              "'" + std::string(text) + "': give a whole number from 3 to 100");
  }
  EXPECT_EQ(problem_of_count("18446744073709551615", 0, ~std::uint64_t{0}), "");
}

}  // namespace
}  // namespace kv::client
