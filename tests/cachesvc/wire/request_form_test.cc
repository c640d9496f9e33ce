// Frames that FlatBuffers finds sound and that make no sense: each is refused with the field that
// is wrong, and the envelope still says whom to answer.
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "cachesvc/wire/request_decoder.h"
#include "tests/cachesvc/wire/frames.h"

namespace kv::testing {
namespace {

using codec::RequestDecoder;
using flatbuffers::FlatBufferBuilder;
using wire::RequestBody;

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

// The error of a frame whose envelope is sound.
Error refusal(const Frame& frame) {
  RequestDecoder decoder;
  const auto result = decoder.decode(frame);
  EXPECT_FALSE(result.has_value());
  if (result) return Error{ErrorCode::ok, {}, {}};
  EXPECT_EQ(decoder.envelope().client, ClientId(7));
  EXPECT_EQ(decoder.envelope().request, RequestId(3));
  EXPECT_EQ(decoder.envelope().secret.a, 0x1122334455667788U);
  EXPECT_FALSE(result.error().reason.empty());
  return result.error();
}

void expect_refused(const Frame& frame, ErrorCode code, std::string_view field) {
  const Error error = refusal(frame);
  EXPECT_EQ(error.code, code) << error.reason;
  EXPECT_EQ(error.field, field) << error.reason;
}

bool accepted(const Frame& frame) { return RequestDecoder().decode(frame).has_value(); }

Frame hello(const std::string& name) {
  return request_frame(RequestBody::Hello, [&](FlatBufferBuilder& builder) {
    return wire::CreateHello(builder, 1, builder.CreateString(name));
  });
}

TEST(RequestForm, BoundsTheNameOfAClient) {
  EXPECT_TRUE(accepted(hello(std::string(128, 'x'))));
  expect_refused(hello(std::string(129, 'x')), ErrorCode::too_large, "name");
}

TEST(RequestForm, RefusesNamesThatCouldSteerATerminal) {
  expect_refused(hello("a\nb"), ErrorCode::invalid, "name");
  expect_refused(hello("\x1b[2J"), ErrorCode::invalid, "name");
  expect_refused(hello(std::string("a\0b", 3)), ErrorCode::invalid, "name");
  expect_refused(hello("\xff"), ErrorCode::invalid, "name");
}

TEST(RequestForm, TakesAMissingNameAsEmpty) {
  EXPECT_TRUE(accepted(request_frame(RequestBody::Hello, [](FlatBufferBuilder& builder) {
    return wire::CreateHello(builder, 1);
  })));
}

Frame heartbeat(const FrameHeader& header) {
  return request_frame(
      RequestBody::Heartbeat,
      [](FlatBufferBuilder& builder) { return wire::CreateHeartbeat(builder); }, header);
}

TEST(RequestForm, RefusesReservedClientAndRequestIds) {
  RequestDecoder decoder;
  ASSERT_FALSE(decoder.decode(heartbeat({.client = kNone})).has_value());
  EXPECT_EQ(decoder.decode(heartbeat({.client = kNone})).error().field, "client");
  EXPECT_TRUE(decoder.envelope().client.is_none());
  for (const std::uint64_t request : {std::uint64_t{0}, kNone}) {
    const auto result = decoder.decode(heartbeat({.request = request}));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::invalid);
    EXPECT_EQ(result.error().field, "request");
    EXPECT_EQ(decoder.envelope().client, ClientId(7));
    EXPECT_TRUE(decoder.envelope().request.is_none());
  }
  EXPECT_TRUE(decoder.decode(heartbeat({.request = 1})).has_value());
}

TEST(RequestForm, AnswersARequestOfALaterProtocolWithUnsupported) {
  const auto later = static_cast<RequestBody>(static_cast<int>(RequestBody::MAX) + 1);
  const auto empty = [](FlatBufferBuilder& builder) { return wire::CreateFlush(builder); };
  expect_refused(request_frame(later, empty), ErrorCode::unsupported, "body");
  expect_refused(request_frame(static_cast<RequestBody>(255), empty), ErrorCode::unsupported,
                 "body");
}

TEST(RequestForm, RefusesARequestWithoutABody) {
  const auto absent = [](FlatBufferBuilder&) { return flatbuffers::Offset<wire::Flush>(); };
  for (int type = 0; type <= static_cast<int>(RequestBody::MAX); ++type) {
    SCOPED_TRACE(type);
    expect_refused(request_frame(static_cast<RequestBody>(type), absent), ErrorCode::invalid,
                   "body");
  }
}

Frame attach_pool(const std::vector<wire::LayerGroup>& groups, std::uint32_t block_tokens = 16) {
  return request_frame(RequestBody::AttachPool, [&](FlatBufferBuilder& builder) {
    const auto layout =
        wire::CreateLayout(builder, block_tokens, builder.CreateVectorOfStructs(groups));
    return wire::CreateAttachPool(builder, layout);
  });
}

TEST(RequestForm, RefusesLayoutsWithNumbersOutOfRange) {
  const wire::LayerGroup good(0, 0, 0, 2, 2, 8, 8, 0, 0);
  EXPECT_TRUE(accepted(attach_pool({good})));
  expect_refused(attach_pool({wire::LayerGroup(4, 0, 0, 2, 2, 8, 8, 0, 0)}), ErrorCode::invalid,
                 "kind");
  expect_refused(attach_pool({wire::LayerGroup(0, 5, 0, 2, 2, 8, 8, 0, 0)}), ErrorCode::invalid,
                 "k_dtype");
  expect_refused(attach_pool({good, wire::LayerGroup(0, 0, 255, 2, 2, 8, 8, 0, 0)}),
                 ErrorCode::invalid, "v_dtype");
  expect_refused(attach_pool(std::vector<wire::LayerGroup>(9, good)), ErrorCode::too_large,
                 "groups");
}

TEST(RequestForm, RefusesLayoutsThatDoNotValidate) {
  const wire::LayerGroup good(0, 0, 0, 2, 2, 8, 8, 0, 0);
  EXPECT_EQ(refusal(attach_pool({})).code, ErrorCode::invalid);
  EXPECT_EQ(refusal(attach_pool({good}, 0)).code, ErrorCode::invalid);
  EXPECT_EQ(refusal(attach_pool({good}, 24)).code, ErrorCode::invalid);
  EXPECT_EQ(refusal(attach_pool({good}, 2048)).code, ErrorCode::invalid);
  EXPECT_EQ(refusal(attach_pool({wire::LayerGroup(0, 0, 0, 0, 2, 8, 8, 0, 0)})).code,
            ErrorCode::invalid);
  const Frame no_groups = request_frame(RequestBody::AttachPool, [](FlatBufferBuilder& builder) {
    return wire::CreateAttachPool(builder, wire::CreateLayout(builder, 16));
  });
  EXPECT_EQ(refusal(no_groups).code, ErrorCode::invalid);
}

Frame open(std::uint64_t sequence, std::size_t token_count) {
  return request_frame(RequestBody::Open, [&](FlatBufferBuilder& builder) {
    const auto tokens = builder.CreateVector(std::vector<std::uint32_t>(token_count, 5));
    return wire::CreateOpen(builder, sequence, 0, tokens);
  });
}

TEST(RequestForm, BoundsTheTokensOfAMessage) {
  EXPECT_TRUE(accepted(open(1, core::kTokensPerMessageMax)));
  expect_refused(open(1, core::kTokensPerMessageMax + 1), ErrorCode::too_large, "tokens");
  const std::vector<std::uint32_t> many(core::kTokensPerMessageMax + 1, 5);
  expect_refused(request_frame(RequestBody::Lookup,
                               [&](FlatBufferBuilder& builder) {
                                 const auto tokens = builder.CreateVector(many);
                                 const auto fields = wire::CreateNamespace(builder);
                                 return wire::CreateLookup(builder, fields, tokens);
                               }),
                 ErrorCode::too_large, "tokens");
  expect_refused(request_frame(RequestBody::Step,
                               [&](FlatBufferBuilder& builder) {
                                 const auto tokens = builder.CreateVector(many);
                                 return wire::CreateStep(builder, 1, 0, 0, tokens);
                               }),
                 ErrorCode::too_large, "tokens");
}

TEST(RequestForm, RefusesTheReservedSequenceIdEverywhere) {
  expect_refused(open(kNone, 1), ErrorCode::invalid, "sequence");
  expect_refused(request_frame(RequestBody::Admit,
                               [](FlatBufferBuilder& builder) {
                                 return wire::CreateAdmit(builder, kNone, 1);
                               }),
                 ErrorCode::invalid, "sequence");
}

// A Lookup with one namespace field of this many bytes.
Frame lookup_with(int field, std::size_t bytes) {
  return request_frame(RequestBody::Lookup, [&](FlatBufferBuilder& builder) {
    const auto text = builder.CreateVector(std::vector<std::uint8_t>(bytes, 'x'));
    wire::NamespaceBuilder fields(builder);
    if (field == 0) fields.add_weights(text);
    if (field == 1) fields.add_model_config(text);
    if (field == 2) fields.add_adapter(text);
    if (field == 3) fields.add_adapter_revision(text);
    if (field == 4) fields.add_salt(text);
    const auto done = fields.Finish();
    return wire::CreateLookup(builder, done, 0);
  });
}

TEST(RequestForm, BoundsEveryFieldOfANamespace) {
  const std::vector<std::string> names{"weights", "model_config", "adapter", "adapter_revision",
                                       "salt"};
  for (int field = 0; field < 5; ++field) {
    EXPECT_TRUE(accepted(lookup_with(field, kNamespaceFieldBytesMax)));
    expect_refused(lookup_with(field, kNamespaceFieldBytesMax + 1), ErrorCode::too_large,
                   names[static_cast<std::size_t>(field)]);
  }
}

TEST(RequestForm, RefusesALookupWithoutANamespaceAndAPoolWithoutALayout) {
  const auto refused_whole = [](RequestBody type) {
    const Frame frame = request_frame(type, [](FlatBufferBuilder& builder) {
      return wire::CreateFlush(builder);  // a table without the required field
    });
    const auto result = RequestDecoder().decode(frame);
    return !result.has_value() && result.error().field == "frame";
  };
  EXPECT_TRUE(refused_whole(RequestBody::Lookup));
  EXPECT_TRUE(refused_whole(RequestBody::Why));
  EXPECT_TRUE(refused_whole(RequestBody::AttachPool));
  EXPECT_TRUE(refused_whole(RequestBody::SetEpoch));
}

Frame step(const std::vector<wire::StepItem>& items, std::size_t token_count,
           std::size_t child_count = 0) {
  return request_frame(RequestBody::Step, [&](FlatBufferBuilder& builder) {
    const auto item_vector = builder.CreateVectorOfStructs(items);
    const auto tokens = builder.CreateVector(std::vector<std::uint32_t>(token_count, 5));
    const auto children = builder.CreateVector(std::vector<std::uint64_t>(child_count, 77));
    return wire::CreateStep(builder, 1, 0, item_vector, tokens, children);
  });
}

TEST(RequestForm, BoundsTheItemsOfAStep) {
  const wire::StepItem item(1, 1, 0, 0, 16);
  EXPECT_TRUE(accepted(step(std::vector<wire::StepItem>(core::kStepItemsMax, item), 0)));
  expect_refused(step(std::vector<wire::StepItem>(core::kStepItemsMax + 1, item), 0),
                 ErrorCode::too_large, "items");
}

TEST(RequestForm, RefusesItemsWithUnknownOperationsOrReservedIds) {
  const wire::StepItem good(1, 4, 0, 0, 16);
  EXPECT_TRUE(accepted(step({good}, 0)));
  expect_refused(step({good, wire::StepItem(1, 8, 0, 0, 16)}, 0), ErrorCode::invalid, "op");
  expect_refused(step({good, wire::StepItem(1, 255, 0, 0, 16)}, 0), ErrorCode::invalid, "op");
  expect_refused(step({good, wire::StepItem(kNone, 1, 0, 0, 16)}, 0), ErrorCode::invalid,
                 "sequence");
}

TEST(RequestForm, RefusesItemsThatReachBeyondTheTokens) {
  EXPECT_TRUE(accepted(step({wire::StepItem(1, 0, 2, 3, 0)}, 5)));
  EXPECT_TRUE(accepted(step({wire::StepItem(1, 0, 5, 0, 0)}, 5)));
  expect_refused(step({wire::StepItem(1, 0, 2, 4, 0)}, 5), ErrorCode::invalid, "token_count");
  expect_refused(step({wire::StepItem(1, 0, 6, 0, 0)}, 5), ErrorCode::invalid, "token_count");
  // The sum would wrap around in 32 bits.
  expect_refused(step({wire::StepItem(1, 0, 0xFFFFFFFFU, 2, 0)}, 5), ErrorCode::invalid,
                 "token_count");
}

TEST(RequestForm, RefusesItemsWithNumbersThatTheirOperationDoesNotUse) {
  // append, publish, truncate, free, acknowledge, fork, preempt, drop
  constexpr bool kUsesOffset[] = {true, false, false, false, false, false, false, true};
  constexpr bool kUsesCount[] = {true, false, false, false, false, true, false, true};
  constexpr bool kUsesValue[] = {false, true, true, false, true, true, false, false};
  for (std::uint8_t op = 0; op < 8; ++op) {
    SCOPED_TRACE(static_cast<int>(op));
    EXPECT_EQ(accepted(step({wire::StepItem(1, op, 0, 0, 0)}, 5, 10)), true);
    EXPECT_EQ(accepted(step({wire::StepItem(1, op, 0, 2, 0)}, 5, 10)), kUsesCount[op]);
    EXPECT_EQ(accepted(step({wire::StepItem(1, op, 2, 0, 0)}, 5, 10)), kUsesOffset[op]);
    EXPECT_EQ(accepted(step({wire::StepItem(1, op, 0, 0, 9)}, 5, 10)), kUsesValue[op]);
  }
  expect_refused(step({wire::StepItem(1, 3, 0, 0, 9)}, 5), ErrorCode::invalid, "value");
  expect_refused(step({wire::StepItem(1, 1, 0, 2, 9)}, 5), ErrorCode::invalid, "token_count");
}

TEST(RequestForm, RefusesForksThatNameNoChildOfTheMessage) {
  EXPECT_TRUE(accepted(step({wire::StepItem(1, 5, 0, 0, 1)}, 0, 2)));
  expect_refused(step({wire::StepItem(1, 5, 0, 0, 2)}, 0, 2), ErrorCode::invalid, "value");
  expect_refused(step({wire::StepItem(1, 5, 0, 0, 0)}, 0), ErrorCode::invalid, "value");
  expect_refused(step({}, 0, core::kStepItemsMax + 1), ErrorCode::too_large, "children");
  const auto reserved = request_frame(RequestBody::Step, [](FlatBufferBuilder& builder) {
    const auto children = builder.CreateVector(std::vector<std::uint64_t>{1, kNone});
    return wire::CreateStep(builder, 1, 0, 0, 0, children);
  });
  expect_refused(reserved, ErrorCode::invalid, "children");
}

// What a drop names are positions of the sequence, not tokens of the message.
TEST(RequestForm, LeavesTheRangeOfADropToTheEngine) {
  EXPECT_TRUE(accepted(step({wire::StepItem(1, 7, 0xFFFFFFFFU, 0xFFFFFFFFU, 0)}, 0)));
}

TEST(RequestForm, BoundsTreeNodesAndKnowsTheTiers) {
  const auto tree = [](std::uint32_t nodes) {
    return request_frame(RequestBody::Tree, [&](FlatBufferBuilder& builder) {
      return wire::CreateTree(builder, nodes);
    });
  };
  EXPECT_TRUE(accepted(tree(core::kTreeNodesMax)));
  expect_refused(tree(core::kTreeNodesMax + 1), ErrorCode::too_large, "node_limit");
  const auto demote = [](std::uint8_t tier) {
    return request_frame(RequestBody::Demote, [&](FlatBufferBuilder& builder) {
      return wire::CreateDemote(builder, static_cast<wire::Tier>(tier));
    });
  };
  EXPECT_TRUE(accepted(demote(3)));
  expect_refused(demote(4), ErrorCode::invalid, "tier");
}

TEST(RequestForm, RefusesToClearAllTiersAndOneOfThem) {
  const auto clear = [](bool all_tiers, std::uint8_t tier) {
    return request_frame(RequestBody::Clear, [&](FlatBufferBuilder& builder) {
      return wire::CreateClear(builder, all_tiers, static_cast<wire::Tier>(tier));
    });
  };
  EXPECT_TRUE(accepted(clear(true, 0)));
  EXPECT_TRUE(accepted(clear(false, 2)));
  expect_refused(clear(true, 2), ErrorCode::invalid, "tier");
  expect_refused(clear(false, 4), ErrorCode::invalid, "tier");
}

}  // namespace
}  // namespace kv::testing
