// The bytes of every message are a decision: this test fails when they change.
// KV_UPDATE_GOLDEN=1 rewrites the files; the commit then says why the protocol changed.
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/cachesvc/wire/samples.h"
#include "tests/golden/wire/golden_file.h"

namespace kv::testing {
namespace {

TEST(WireGolden, EveryMessageHasExactlyTheRecordedBytes) {
  const bool update = std::getenv("KV_UPDATE_GOLDEN") != nullptr;
  for (const Sample& sample : all_samples()) {
    SCOPED_TRACE(sample.name);
    if (update) write_golden(sample.name, sample.bytes);
    EXPECT_EQ(read_golden(sample.name), sample.bytes);
  }
}

TEST(WireGolden, EveryFileBelongsToAMessageAndEveryMessageHasAFile) {
  std::vector<std::string> names;
  for (const Sample& sample : all_samples()) names.push_back(sample.name);
  std::ranges::sort(names);
  EXPECT_EQ(golden_names(), names);
}

}  // namespace
}  // namespace kv::testing
