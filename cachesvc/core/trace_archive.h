// The byte level of traces: a writer and a parser with the same verbs, one for each sort of field.
// Numbers are little endian; texts and lists carry a u32 count in front; pointers a presence byte.
// Owner: trace.cc, its only user. Threads: none. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"
#include "allocator/kv_layout.h"
#include "allocator/namespace.h"
#include "cachesvc/core/inputs.h"

namespace kv::core {

// What a parsed input points to.
struct TraceStorage {
  std::vector<Token> tokens;
  std::vector<StepItem> step_items;
  std::vector<SequenceId> children;
  std::vector<BlockOutcome> outcomes;
  std::vector<std::uint32_t> checksums;
  std::vector<RecoveredEntry> recovered_entries;
  NamespaceFields fields;
  KvLayout layout;
};

// The fields of the two structs that inputs point to, shared by both archives.
template <class Archive>
void visit_fields(Archive& archive, NamespaceFields& fields) {
  archive.text(fields.weights);
  archive.text(fields.model_config);
  archive.text(fields.adapter);
  archive.text(fields.adapter_revision);
  archive.text(fields.tenant);
  archive.text(fields.salt);
  archive.number(fields.block_tokens);
}
template <class Archive>
void visit_fields(Archive& archive, LayerGroup& group) {
  archive.choice(group.kind, kAttentionKindCount);
  archive.number(group.layer_count);
  archive.number(group.kv_head_count);
  archive.number(group.head_dim_k);
  archive.number(group.head_dim_v);
  archive.choice(group.k_dtype, kDTypeCount);
  archive.choice(group.v_dtype, kDTypeCount);
  archive.number(group.window_tokens);
  archive.number(group.sink_tokens);
}

class TraceWriter {
 public:
  explicit TraceWriter(std::vector<std::byte>& out) : out_(out) {}

  template <class Number>
  void number(Number value) {
    static_assert(std::is_unsigned_v<Number>);
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      out_.push_back(static_cast<std::byte>((std::uint64_t{value} >> (8 * i)) & 0xFFU));
    }
  }
  void flag(bool value) { number(static_cast<std::uint8_t>(value ? 1 : 0)); }
  template <class Id>
  void id(const Id& value) {
    number(value.value);
  }
  template <class Enum>
  void choice(Enum value, std::size_t /*count*/) {
    number(static_cast<std::uint8_t>(value));
  }
  void digest(const Digest& value) {
    out_.insert(out_.end(), value.bytes.begin(), value.bytes.end());
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    const auto bytes = std::as_bytes(std::span(value));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void tokens(std::span<const Token> value) {
    number(static_cast<std::uint32_t>(value.size()));
    for (const Token token : value) number(token);
  }
  template <class Element, class Visit>
  void list(std::span<const Element> values, std::nullptr_t /*storage*/, Visit&& visit) {
    number(static_cast<std::uint32_t>(values.size()));
    for (Element element : values) visit(element);
  }
  void name_space(const NamespaceFields* value) {
    flag(value != nullptr);
    if (value == nullptr) return;
    NamespaceFields copy = *value;
    visit_fields(*this, copy);
  }
  void layout(const KvLayout* value) {
    flag(value != nullptr);
    if (value == nullptr) return;
    number(value->block_tokens);
    number(static_cast<std::uint32_t>(value->groups.size()));
    for (LayerGroup group : value->groups) visit_fields(*this, group);
  }

  static std::nullptr_t step_items() { return nullptr; }
  static std::nullptr_t children() { return nullptr; }
  static std::nullptr_t outcomes() { return nullptr; }
  static std::nullptr_t checksums() { return nullptr; }
  static std::nullptr_t recovered_entries() { return nullptr; }

 private:
  std::vector<std::byte>& out_;
};

// Once a field is damaged, failed() stays true and everything further reads as zero.
class TraceParser {
 public:
  TraceParser(std::span<const std::byte> bytes, TraceStorage& storage)
      : bytes_(bytes), storage_(storage) {}

  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

  template <class Number>
  void number(Number& value) {
    static_assert(std::is_unsigned_v<Number>);
    value = 0;
    const auto bytes = take(sizeof(Number));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value = static_cast<Number>(
          value | (std::uint64_t{std::to_integer<std::uint8_t>(bytes[i])} << (8 * i)));
    }
  }
  void flag(bool& value) {
    std::uint8_t byte = 0;
    number(byte);
    if (byte > 1) failed_ = true;
    value = byte == 1;
  }
  template <class Id>
  void id(Id& value) {
    number(value.value);
  }
  template <class Enum>
  void choice(Enum& value, std::size_t count) {
    std::uint8_t byte = 0;
    number(byte);
    if (byte >= count) {
      failed_ = true;
      byte = 0;
    }
    value = static_cast<Enum>(byte);
  }
  void digest(Digest& value) {
    const auto bytes = take(value.bytes.size());
    if (!bytes.empty()) std::memcpy(value.bytes.data(), bytes.data(), bytes.size());
  }
  void text(std::string_view& value) {
    const auto bytes = take(count(1));
    value = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void tokens(std::span<const Token>& value) {
    list(value, storage_.tokens, [&](Token& token) { number(token); });
  }
  template <class Element, class Visit>
  void list(std::span<const Element>& values, std::vector<Element>& storage, Visit&& visit) {
    storage.assign(count(1), Element{});  // an element has at least one byte
    for (Element& element : storage) {
      if (failed_) break;
      visit(element);
    }
    values = storage;
  }
  void name_space(const NamespaceFields*& value) {
    bool present = false;
    flag(present);
    value = nullptr;
    if (!present) return;
    visit_fields(*this, storage_.fields);
    value = &storage_.fields;
  }
  void layout(const KvLayout*& value) {
    bool present = false;
    flag(present);
    value = nullptr;
    if (!present) return;
    number(storage_.layout.block_tokens);
    storage_.layout.groups.assign(count(1), LayerGroup{});
    for (LayerGroup& group : storage_.layout.groups) {
      if (failed_) break;
      visit_fields(*this, group);
    }
    value = &storage_.layout;
  }

  std::vector<StepItem>& step_items() { return storage_.step_items; }
  std::vector<SequenceId>& children() { return storage_.children; }
  std::vector<BlockOutcome>& outcomes() { return storage_.outcomes; }
  std::vector<std::uint32_t>& checksums() { return storage_.checksums; }
  std::vector<RecoveredEntry>& recovered_entries() { return storage_.recovered_entries; }

 private:
  // A count of elements that the remaining bytes can hold, else 0 and failed: a damaged count never
  // makes us ask for much memory.
  std::size_t count(std::size_t element_bytes_min) {
    std::uint32_t value = 0;
    number(value);
    if (value > bytes_.size() / element_bytes_min) {
      failed_ = true;
      return 0;
    }
    return value;
  }
  std::span<const std::byte> take(std::size_t size) {
    if (failed_ || size > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }

  std::span<const std::byte> bytes_;
  TraceStorage& storage_;
  bool failed_ = false;
};

}  // namespace kv::core
