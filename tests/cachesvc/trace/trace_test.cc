#include "cachesvc/core/trace.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "cachesvc/core/trace_archive.h"

namespace kv::core {
namespace {

constexpr TimePoint kNow{Duration{1'234'567'890}};
constexpr RequestHeader kHeader{ClientId{7}, RequestId{9}, 3};

std::string bytes_of(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>((value >> (8 * i)) & 0xFFU));
  return text;
}

std::vector<std::byte> recorded(const InputView& input) {
  std::vector<std::byte> out;
  append_record(kNow, input, out);
  return out;
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Everything that the sample inputs point to.
struct Samples {
  KvLayout layout{4, {{AttentionKind::full, 2, 1, 8, 16, DType::f16, DType::bf16, 0, 0}}};
  NamespaceFields fields{"weights", "config", "adapter", "revision", "tenant", "salt", 4};
  std::vector<Token> tokens{5, 6, 7, 0xFFFFFFFFU};
  std::vector<StepItem> items{{SequenceId{1}, StepOp::append, 1, 3, 0},
                              {SequenceId{2}, StepOp::fork, 0, 7, 1}};
  std::vector<SequenceId> children{SequenceId{11}, SequenceId{12}};
  std::vector<BlockOutcome> outcomes{BlockOutcome::ok, BlockOutcome::cancelled};
  std::vector<std::uint32_t> checksums{11, 12};
  std::vector<RecoveredEntry> entries;
  std::vector<InputView> inputs;

  Samples() {
    RecoveredEntry entry{{}, {}, {}, 2, GroupId{0}, SlotId{3}, 4, 5};
    entry.key.bytes[0] = std::byte{1};
    entry.parent_key.bytes[1] = std::byte{2};
    entry.namespace_digest.bytes[31] = std::byte{3};
    entries = {entry};
    inputs = {Hello{kHeader, 1, "runner", 2, 3},
              Heartbeat{kHeader},
              Bye{kHeader},
              AttachPool{kHeader, &layout},
              Open{kHeader, SequenceId{4}, true, &fields, tokens, true, false},
              Admit{kHeader, SequenceId{4}, 5},
              Step{kHeader, 6, 5, items, tokens, children},
              Lookup{kHeader, &fields, tokens},
              Status{kHeader},
              Tree{kHeader, 77},
              Demote{kHeader, Tier::host},
              Flush{kHeader},
              ClientAttached{ClientId{8}, ClientRole::admin, "somebody", 4321},
              ClientGone{ClientId{8}},
              TransferDone{TransferId{9}, outcomes, checksums},
              Recovered{entries, tokens, true},
              DiskFormat{&layout},
              DiskSynced{10, true},
              Tick{Duration{0x0102030405060708}},
              Continue{},
              DiskOff{},
              Clear{kHeader, false, Tier::disk, &fields},
              SetEpoch{kHeader, &fields, 9},
              Why{kHeader, &fields, tokens}};
  }
};

// The expected bytes are written out here field by field, in the order of inputs.h.
std::string expected_body(std::size_t kind) {
  const std::string header = bytes_of(7, 8) + bytes_of(9, 8) + bytes_of(3, 8);
  const std::string layout = bytes_of(1, 1) + bytes_of(4, 4) + bytes_of(1, 4) + bytes_of(0, 1) +
                             bytes_of(2, 4) + bytes_of(1, 4) + bytes_of(8, 4) + bytes_of(16, 4) +
                             bytes_of(1, 1) + bytes_of(2, 1) + bytes_of(0, 4) + bytes_of(0, 4);
  std::string fields = bytes_of(1, 1);
  for (const std::string text : {"weights", "config", "adapter", "revision", "tenant", "salt"}) {
    fields += bytes_of(text.size(), 4) + text;
  }
  fields += bytes_of(4, 4);
  const std::string tokens =
      bytes_of(4, 4) + bytes_of(5, 4) + bytes_of(6, 4) + bytes_of(7, 4) + "\xFF\xFF\xFF\xFF";
  std::string digests(96, '\0');
  digests[0] = 1;
  digests[33] = 2;
  digests[95] = 3;
  const std::vector<std::string> bodies = {
      header + bytes_of(1, 4) + bytes_of(6, 4) + "runner" + bytes_of(2, 8) + bytes_of(3, 4),
      header,
      header,
      header + layout,
      header + bytes_of(4, 8) + bytes_of(1, 1) + fields + tokens + bytes_of(1, 1) + bytes_of(0, 1),
      header + bytes_of(4, 8) + bytes_of(5, 4),
      header + bytes_of(6, 8) + bytes_of(5, 8) + bytes_of(2, 4) +
          (bytes_of(1, 8) + bytes_of(0, 1) + bytes_of(1, 4) + bytes_of(3, 4) + bytes_of(0, 4)) +
          (bytes_of(2, 8) + bytes_of(5, 1) + bytes_of(0, 4) + bytes_of(7, 4) + bytes_of(1, 4)) +
          tokens + bytes_of(2, 4) + bytes_of(11, 8) + bytes_of(12, 8),
      header + fields + tokens,
      header,
      header + bytes_of(77, 4),
      header + bytes_of(1, 1),
      header,
      bytes_of(8, 8) + bytes_of(2, 1) + bytes_of(8, 4) + "somebody" + bytes_of(4321, 8),
      bytes_of(8, 8),
      bytes_of(9, 8) + bytes_of(2, 4) + bytes_of(0, 1) + bytes_of(4, 1) + bytes_of(2, 4) +
          bytes_of(11, 4) + bytes_of(12, 4),
      bytes_of(1, 4) + digests + bytes_of(2, 4) + bytes_of(0, 4) + bytes_of(3, 4) + bytes_of(4, 4) +
          bytes_of(5, 4) + tokens + bytes_of(1, 1),
      layout,
      bytes_of(10, 8) + bytes_of(1, 1),
      bytes_of(0x0102030405060708, 8),
      "",
      "",
      header + bytes_of(0, 1) + bytes_of(2, 1) + fields,
      header + fields + bytes_of(9, 8),
      header + fields + tokens};
  return bodies.at(kind);
}

TEST(Trace, WritesEveryInputAsTheDocumentedBytes) {
  const Samples samples;
  ASSERT_EQ(samples.inputs.size(), std::variant_size_v<InputView>);
  for (std::size_t kind = 0; kind < samples.inputs.size(); ++kind) {
    SCOPED_TRACE(kind);
    ASSERT_EQ(samples.inputs[kind].index(), kind);
    const std::string body =
        bytes_of(3, 1) + bytes_of(kind, 1) + bytes_of(1'234'567'890, 8) + expected_body(kind);
    EXPECT_EQ(as_text(recorded(samples.inputs[kind])), bytes_of(body.size(), 4) + body);
  }
}

// Writing what was read gives the bytes again; with the test above this fixes every field.
TEST(Trace, ReadsEveryInputBackAsItWasWritten) {
  const Samples samples;
  std::vector<std::byte> trace;
  for (const InputView& input : samples.inputs) append_record(kNow, input, trace);
  std::vector<std::byte> again;
  TraceReader reader(trace);
  for (std::size_t kind = 0; kind < samples.inputs.size(); ++kind) {
    SCOPED_TRACE(kind);
    ASSERT_FALSE(reader.at_end());
    const auto record = reader.next();
    ASSERT_TRUE(record) << record.error().reason;
    EXPECT_EQ(record->now, kNow);
    EXPECT_EQ(record->input.index(), kind);
    append_record(record->now, record->input, again);
  }
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(reader.next().error().code, ErrorCode::not_found);
  EXPECT_EQ(as_text(again), as_text(trace));
}

TEST(Trace, GivesFieldsToTheReaderAsTheyWere) {
  const Samples samples;
  const auto open = recorded(samples.inputs[4]);
  TraceReader reader(open);
  const auto record = reader.next();
  ASSERT_TRUE(record);
  const auto& input = std::get<Open>(record->input);
  EXPECT_EQ(input.sequence, SequenceId{4});
  EXPECT_TRUE(input.skip_read);
  EXPECT_FALSE(input.accept_rewrite);
  ASSERT_NE(input.fields, nullptr);
  EXPECT_EQ(namespace_digest(*input.fields), namespace_digest(samples.fields));
  EXPECT_EQ(std::vector<Token>(input.tokens.begin(), input.tokens.end()), samples.tokens);
}

TEST(Trace, ReadsAnOpenWithoutFieldsAsAnOpenWithoutFields) {
  const auto bytes = recorded(Open{kHeader, SequenceId{4}, false, nullptr, {}, false, true});
  TraceReader reader(bytes);
  const auto record = reader.next();
  ASSERT_TRUE(record);
  EXPECT_EQ(std::get<Open>(record->input).fields, nullptr);
}

// Reads on until the end or the first error; touches everything that was read.
std::size_t read_all(std::span<const std::byte> bytes) {
  TraceReader reader(bytes);
  std::vector<std::byte> touched;
  while (!reader.at_end()) {
    const auto record = reader.next();
    if (!record) {
      EXPECT_EQ(record.error().code, ErrorCode::corrupt);
      break;
    }
    append_record(record->now, record->input, touched);
  }
  return touched.size();
}

TEST(Trace, CutAtAnyByteIsAnErrorButNothingWorse) {
  const Samples samples;
  for (const InputView& input : samples.inputs) {
    const auto whole = recorded(input);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const std::vector<std::byte> cut(whole.begin(),
                                       whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(read_all(cut), 0U) << "kind " << input.index() << " size " << size;
    }
  }
}

TEST(Trace, WithAnyByteChangedIsAnErrorOrAnotherValidRecord) {
  const Samples samples;
  for (const InputView& input : samples.inputs) {
    const auto whole = recorded(input);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        auto changed = whole;
        changed[at] = static_cast<std::byte>(value);
        read_all(changed);
      }
    }
  }
}

TEST(Trace, TakesNoMemoryForACountThatTheBytesCannotHold) {
  const std::vector<std::byte> bytes(4, std::byte{0xFF});
  TraceStorage storage;
  TraceParser parser(bytes, storage);
  std::span<const Token> tokens;
  parser.tokens(tokens);
  EXPECT_TRUE(parser.failed());
  EXPECT_EQ(storage.tokens.capacity(), 0U);
}

TEST(Trace, RefusesTimeThatGoesBack) {
  std::vector<std::byte> trace;
  append_record(kNow, Tick{}, trace);
  append_record(kNow - Duration{1}, Tick{}, trace);
  TraceReader reader(trace);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.next().error().field, "now");
}

TEST(Trace, RefusesWhatTheWireLayerWouldNeverPassOn) {
  const Samples samples;
  KvLayout bad_layout = samples.layout;
  bad_layout.block_tokens = 3;
  const std::vector<StepItem> items = {{SequenceId{1}, StepOp::append, 2, 3, 0}};
  const std::vector<InputView> inputs = {
      AttachPool{kHeader, nullptr},
      DiskFormat{&bad_layout},
      Open{kHeader, SequenceId{4}, true, nullptr, {}, false, true},
      Lookup{kHeader, nullptr, {}},
      Step{kHeader, 6, 5, items, samples.tokens},
      Tick{Duration{-1}},
  };
  for (const InputView& input : inputs) {
    EXPECT_EQ(read_all(recorded(input)), 0U) << "kind " << input.index();
  }
}

}  // namespace
}  // namespace kv::core
