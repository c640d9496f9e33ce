#include "allocator/namespace.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace kv {
namespace {

TEST(Namespace, EncodesTypedLengthPrefixedFieldsInOrder) {
  const auto bytes = encode({.weights = "w", .adapter = "ab", .block_tokens = 4});
  std::string expected = "cachesvc-namespace-v1";
  const auto field = [&](char tag, const std::string& value) {
    expected += tag;
    expected += static_cast<char>(value.size());
    expected.append(7, '\0');
    expected += value;
  };
  field('\1', "w");
  field('\2', "");
  field('\3', "ab");
  field('\4', "");
  field('\5', "");
  field('\6', "");
  field('\7', std::string("\4\0\0\0", 4));
  const std::string got(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(got, expected);
}

TEST(Namespace, CountsTheBlockSizeOnlyWhereBlocksArePadded) {
  const Digest sixteen = namespace_digest({.weights = "w", .block_tokens = 16});
  EXPECT_EQ(namespace_digest({.weights = "w", .block_tokens = 32}), sixteen);
  EXPECT_NE(namespace_digest({.weights = "w", .block_tokens = 8}), sixteen);
  EXPECT_NE(namespace_digest({.weights = "w", .block_tokens = 8}),
            namespace_digest({.weights = "w", .block_tokens = 4}));
}

// SCENARIOS SEC-02: a value in one field is never the same value in another.
TEST(Namespace, KeepsEveryCombinationOfEqualFieldValuesApart) {
  std::set<Digest> digests;
  for (unsigned set = 0; set < 64; ++set) {
    const auto value = [&](unsigned bit) {
      return (set >> bit & 1U) != 0 ? std::string_view("x") : std::string_view();
    };
    digests.insert(namespace_digest({.weights = value(0),
                                     .model_config = value(1),
                                     .adapter = value(2),
                                     .adapter_revision = value(3),
                                     .tenant = value(4),
                                     .salt = value(5)}));
  }
  EXPECT_EQ(digests.size(), 64U);
}

// SCENARIOS SEC-03: parts glued together without lengths would be equal here.
TEST(Namespace, DoesNotGlueNeighbouringFieldsTogether) {
  EXPECT_NE(namespace_digest({.tenant = "org_1", .salt = "2345"}),
            namespace_digest({.tenant = "org_12345", .salt = ""}));
  EXPECT_NE(namespace_digest({.weights = "ab", .model_config = "c"}),
            namespace_digest({.weights = "a", .model_config = "bc"}));
  // A field that contains the encoding of the next one.
  std::string glued = "a";
  glued += '\6';
  glued += '\1';
  glued.append(7, '\0');
  glued += 'b';
  EXPECT_NE(namespace_digest({.tenant = "a", .salt = "b"}), namespace_digest({.tenant = glued}));
}

}  // namespace
}  // namespace kv
