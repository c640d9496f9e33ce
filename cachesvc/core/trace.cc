#include "cachesvc/core/trace.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "cachesvc/core/trace_archive.h"

// A record: u32 length of what follows, u8 version, u8 kind (index in InputView), i64 now in ns,
// then the fields of the kind in the order of visit_fields() below. The writer and the reader share
// those functions, so that they cannot disagree on the order.
namespace kv::core {
namespace {

template <class Archive>
void visit_fields(Archive& archive, RequestHeader& header) {
  archive.id(header.client);
  archive.id(header.request);
  archive.number(header.notices_acknowledged);
}

template <class Archive>
void visit_fields(Archive& archive, Hello& input) {
  visit_fields(archive, input.header);
  archive.number(input.protocol_version);
  archive.text(input.name);
  archive.number(input.instance);
  archive.number(input.rank);
}
template <class Archive>
void visit_fields(Archive& archive, Heartbeat& input) {
  visit_fields(archive, input.header);
}
template <class Archive>
void visit_fields(Archive& archive, Bye& input) {
  visit_fields(archive, input.header);
}
template <class Archive>
void visit_fields(Archive& archive, AttachPool& input) {
  visit_fields(archive, input.header);
  archive.layout(input.layout);
}
template <class Archive>
void visit_fields(Archive& archive, Open& input) {
  visit_fields(archive, input.header);
  archive.id(input.sequence);
  archive.flag(input.first);
  archive.name_space(input.fields);
  archive.tokens(input.tokens);
  archive.flag(input.skip_read);
  archive.flag(input.accept_rewrite);
}
template <class Archive>
void visit_fields(Archive& archive, Admit& input) {
  visit_fields(archive, input.header);
  archive.id(input.sequence);
  archive.number(input.max_new_tokens);
}
template <class Archive>
void visit_fields(Archive& archive, StepItem& item) {
  archive.id(item.sequence);
  archive.choice(item.op, kStepOpCount);
  archive.number(item.token_offset);
  archive.number(item.token_count);
  archive.number(item.value);
}
template <class Archive>
void visit_fields(Archive& archive, Step& input) {
  visit_fields(archive, input.header);
  archive.number(input.step_seq);
  archive.number(input.completed_step);
  archive.list(input.items, archive.step_items(),
               [&](StepItem& item) { visit_fields(archive, item); });
  archive.tokens(input.tokens);
  archive.list(input.children, archive.children(), [&](SequenceId& child) { archive.id(child); });
}
template <class Archive>
void visit_fields(Archive& archive, Lookup& input) {
  visit_fields(archive, input.header);
  archive.name_space(input.fields);
  archive.tokens(input.tokens);
}
template <class Archive>
void visit_fields(Archive& archive, Why& input) {
  visit_fields(archive, input.header);
  archive.name_space(input.fields);
  archive.tokens(input.tokens);
}
template <class Archive>
void visit_fields(Archive& archive, Status& input) {
  visit_fields(archive, input.header);
}
template <class Archive>
void visit_fields(Archive& archive, Tree& input) {
  visit_fields(archive, input.header);
  archive.number(input.node_limit);
}
template <class Archive>
void visit_fields(Archive& archive, Demote& input) {
  visit_fields(archive, input.header);
  archive.choice(input.tier, kTierCount);
}
template <class Archive>
void visit_fields(Archive& archive, Flush& input) {
  visit_fields(archive, input.header);
}
template <class Archive>
void visit_fields(Archive& archive, Clear& input) {
  visit_fields(archive, input.header);
  archive.flag(input.all_tiers);
  archive.choice(input.tier, kTierCount);
  archive.name_space(input.fields);
}
template <class Archive>
void visit_fields(Archive& archive, SetEpoch& input) {
  visit_fields(archive, input.header);
  archive.name_space(input.fields);
  archive.number(input.epoch);
}
template <class Archive>
void visit_fields(Archive& archive, ClientAttached& input) {
  archive.id(input.client);
  archive.choice(input.role, kClientRoleCount);
  archive.text(input.tenant);
  archive.number(input.process_id);
}
template <class Archive>
void visit_fields(Archive& archive, ClientGone& input) {
  archive.id(input.client);
}
template <class Archive>
void visit_fields(Archive& archive, TransferDone& input) {
  archive.id(input.id);
  archive.list(input.outcomes, archive.outcomes(),
               [&](BlockOutcome& outcome) { archive.choice(outcome, kBlockOutcomeCount); });
  archive.list(input.checksums, archive.checksums(),
               [&](std::uint32_t& checksum) { archive.number(checksum); });
}
template <class Archive>
void visit_fields(Archive& archive, RecoveredEntry& entry) {
  archive.digest(entry.key);
  archive.digest(entry.parent_key);
  archive.digest(entry.namespace_digest);
  archive.number(entry.depth);
  archive.id(entry.group);
  archive.id(entry.slot);
  archive.number(entry.generation);
  archive.number(entry.checksum);
}
template <class Archive>
void visit_fields(Archive& archive, Recovered& input) {
  archive.list(input.entries, archive.recovered_entries(),
               [&](RecoveredEntry& entry) { visit_fields(archive, entry); });
  archive.tokens(input.tokens);
  archive.flag(input.last);
}
template <class Archive>
void visit_fields(Archive& archive, DiskFormat& input) {
  archive.layout(input.layout);
}
template <class Archive>
void visit_fields(Archive& archive, DiskSynced& input) {
  archive.number(input.id);
  archive.flag(input.ok);
}
template <class Archive>
void visit_fields(Archive& archive, Tick& input) {
  auto nanoseconds = static_cast<std::uint64_t>(input.unheard.count());
  archive.number(nanoseconds);
  input.unheard = Duration(static_cast<std::int64_t>(nanoseconds));
}
template <class Archive>
void visit_fields(Archive& /*archive*/, Continue& /*input*/) {}
template <class Archive>
void visit_fields(Archive& /*archive*/, DiskOff& /*input*/) {}

// What the wire layer guarantees to the Engine, so that a damaged trace cannot break it either.
template <class Input>
bool is_sound(const Input& input) {
  if constexpr (std::is_same_v<Input, AttachPool> || std::is_same_v<Input, DiskFormat>) {
    return input.layout != nullptr && validate(*input.layout).has_value();
  } else if constexpr (std::is_same_v<Input, Open>) {
    return (!input.first || input.fields != nullptr) && input.tokens.size() <= kTokensPerMessageMax;
  } else if constexpr (std::is_same_v<Input, Lookup> || std::is_same_v<Input, Why>) {
    return input.fields != nullptr && input.tokens.size() <= kTokensPerMessageMax;
  } else if constexpr (std::is_same_v<Input, SetEpoch>) {
    return input.fields != nullptr;
  } else if constexpr (std::is_same_v<Input, Step>) {
    return input.items.size() <= kStepItemsMax && input.tokens.size() <= kTokensPerMessageMax &&
           input.children.size() <= kStepItemsMax &&
           std::ranges::all_of(input.items, [&input](const StepItem& item) {
             return item.op != StepOp::append ||
                    std::uint64_t{item.token_offset} + item.token_count <= input.tokens.size();
           });
  } else if constexpr (std::is_same_v<Input, TransferDone>) {
    return input.outcomes.size() <= kTransferBlocksMax &&
           input.checksums.size() <= kTransferBlocksMax;
  } else if constexpr (std::is_same_v<Input, Recovered>) {
    return input.entries.size() <= kRecoveredEntriesMax;
  } else if constexpr (std::is_same_v<Input, Tick>) {
    return input.unheard >= Duration::zero();
  } else {
    return true;
  }
}

template <std::size_t... kIndex>
InputView input_of_kind(std::size_t kind, std::index_sequence<kIndex...> /*all*/) {
  InputView input;
  ((kind == kIndex ? static_cast<void>(input.emplace<kIndex>()) : static_cast<void>(0)), ...);
  return input;
}

constexpr std::size_t kKindCount = std::variant_size_v<InputView>;

}  // namespace

void append_record(TimePoint now, const InputView& input, std::vector<std::byte>& out) {
  const std::size_t start = out.size();
  TraceWriter writer(out);
  std::uint32_t length = 0;
  writer.number(length);
  auto version = static_cast<std::uint8_t>(kTraceVersion);
  auto kind = static_cast<std::uint8_t>(input.index());
  auto now_ns = std::bit_cast<std::uint64_t>(std::int64_t{now.time_since_epoch().count()});
  writer.number(version);
  writer.number(kind);
  writer.number(now_ns);
  InputView copy = input;  // views only: the archive functions take what they may also fill
  std::visit([&](auto& value) { visit_fields(writer, value); }, copy);
  const std::size_t bytes = out.size() - start - sizeof(length);
  for (std::size_t i = 0; i < sizeof(length); ++i) {
    out[start + i] = static_cast<std::byte>((bytes >> (8 * i)) & 0xFFU);
  }
}

struct TraceReader::Storage {
  TraceStorage values;
  TimePoint latest = TimePoint::min();
};

TraceReader::TraceReader(std::span<const std::byte> bytes)
    : bytes_(bytes), storage_(std::make_unique<Storage>()) {}
TraceReader::~TraceReader() = default;

bool TraceReader::at_end() const { return offset_ == bytes_.size(); }

Result<TraceReader::Record> TraceReader::next() {
  if (at_end()) return Error{ErrorCode::not_found, "trace: no more records", {}};
  std::uint32_t length = 0;
  TraceParser prefix(bytes_.subspan(offset_), storage_->values);
  prefix.number(length);
  const std::size_t body = offset_ + sizeof(length);
  if (prefix.failed() || length > bytes_.size() - body) {
    return Error{ErrorCode::corrupt, "trace: a record is cut short", "length"};
  }
  TraceParser parser(bytes_.subspan(body, length), storage_->values);
  std::uint8_t version = 0;
  std::uint8_t kind = 0;
  std::uint64_t now_bits = 0;
  parser.number(version);
  parser.number(kind);
  parser.number(now_bits);
  if (parser.failed()) return Error{ErrorCode::corrupt, "trace: a record is too short", "length"};
  if (version != kTraceVersion) {
    return Error{ErrorCode::corrupt, "trace: written by another version", "version"};
  }
  if (kind >= kKindCount) return Error{ErrorCode::corrupt, "trace: unknown kind", "kind"};
  const TimePoint now{Duration{std::bit_cast<std::int64_t>(now_bits)}};
  if (now < storage_->latest) return Error{ErrorCode::corrupt, "trace: time goes back", "now"};
  Record record{now, input_of_kind(kind, std::make_index_sequence<kKindCount>{})};
  std::visit([&](auto& value) { visit_fields(parser, value); }, record.input);
  if (parser.failed() || !parser.at_end() ||
      !std::visit([](const auto& value) { return is_sound(value); }, record.input)) {
    return Error{ErrorCode::corrupt, "trace: a record's fields are damaged", "fields"};
  }
  storage_->latest = now;
  offset_ = body + length;
  return record;
}

}  // namespace kv::core
