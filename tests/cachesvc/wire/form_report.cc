#include "tests/cachesvc/wire/form_report.h"

#include <span>
#include <variant>

namespace kv::testing {
namespace {

class Reader {
 public:
  [[nodiscard]] const FormReport& report() const { return report_; }

  void operator()(const core::Hello& hello) {
    header(hello.header);
    text(hello.name, 128);
    for (const char c : hello.name) require(c >= ' ' && c <= '~', "name: not printable");
  }
  void operator()(const core::AttachPool& attach) {
    header(attach.header);
    require(attach.layout != nullptr, "layout: missing");
    if (attach.layout == nullptr) return;
    require(validate(*attach.layout).has_value(), "layout: not valid");
    for (const LayerGroup& group : attach.layout->groups) {
      require(static_cast<int>(group.kind) < 4, "kind: out of range");
      require(static_cast<int>(group.k_dtype) < 5, "k_dtype: out of range");
      require(static_cast<int>(group.v_dtype) < 5, "v_dtype: out of range");
    }
  }
  void operator()(const core::Open& open) {
    header(open.header);
    sequence(open.sequence);
    require(open.first == (open.fields != nullptr), "first: without a namespace");
    if (open.fields != nullptr) fields(*open.fields);
    tokens(open.tokens);
  }
  void operator()(const core::Admit& admit) {
    header(admit.header);
    sequence(admit.sequence);
  }
  void operator()(const core::Step& step) {
    header(step.header);
    tokens(step.tokens);
    require(step.items.size() <= 4'096, "items: too many");
    require(step.children.size() <= 4'096, "children: too many");
    for (const SequenceId child : step.children) sequence(child);
    for (const core::StepItem& item : step.items) {
      sequence(item.sequence);
      require(static_cast<int>(item.op) < 8, "op: out of range");
      const bool inside = item.token_offset <= step.tokens.size() &&
                          item.token_count <= step.tokens.size() - item.token_offset;
      require(inside || item.op != core::StepOp::append, "token_count: outside");
      require(item.value < step.children.size() || item.op != core::StepOp::fork, "value: outside");
      report_.sum += item.value;
    }
  }
  void operator()(const core::Lookup& lookup) {
    header(lookup.header);
    require(lookup.fields != nullptr, "fields: missing");
    if (lookup.fields != nullptr) fields(*lookup.fields);
    tokens(lookup.tokens);
  }
  void operator()(const core::Why& why) {
    header(why.header);
    require(why.fields != nullptr, "fields: missing");
    if (why.fields != nullptr) fields(*why.fields);
    tokens(why.tokens);
  }
  void operator()(const core::Tree& tree) {
    header(tree.header);
    require(tree.node_limit <= 1'000, "node_limit: too large");
  }
  void operator()(const core::Demote& demote) {
    header(demote.header);
    require(static_cast<int>(demote.tier) < 4, "tier: out of range");
  }
  void operator()(const core::Clear& clear) {
    header(clear.header);
    require(static_cast<int>(clear.tier) < 4, "tier: out of range");
    if (clear.fields != nullptr) fields(*clear.fields);
  }
  void operator()(const core::SetEpoch& set) {
    header(set.header);
    require(set.fields != nullptr, "fields: missing");
    if (set.fields != nullptr) fields(*set.fields);
  }
  void operator()(const core::Heartbeat& heartbeat) { header(heartbeat.header); }
  void operator()(const core::Bye& bye) { header(bye.header); }
  void operator()(const core::Status& status) { header(status.header); }
  void operator()(const core::Flush& flush) { header(flush.header); }
  template <class Other>
  void operator()(const Other& /*other*/) {
    require(false, "a report of the shell came out of a message");
  }

 private:
  void require(bool holds, std::string_view error) {
    if (!holds && report_.error.empty()) report_.error = error;
  }
  void header(const core::RequestHeader& header) {
    require(!header.client.is_none(), "client: reserved");
    require(!header.request.is_none() && header.request.value != 0, "request: reserved");
  }
  void sequence(SequenceId sequence) { require(!sequence.is_none(), "sequence: reserved"); }
  void text(std::string_view bytes, std::size_t bytes_max) {
    require(bytes.size() <= bytes_max, "text: too long");
    for (const char c : bytes) report_.sum += static_cast<unsigned char>(c);
  }
  void fields(const NamespaceFields& fields) {
    for (const std::string_view field : {fields.weights, fields.model_config, fields.adapter,
                                         fields.adapter_revision, fields.salt}) {
      text(field, 4'096);
    }
    require(fields.tenant.empty(), "tenant: from a message");
  }
  void tokens(std::span<const Token> tokens) {
    require(tokens.size() <= 65'536, "tokens: too many");
    for (const Token token : tokens) report_.sum += token;
  }

  FormReport report_;
};

}  // namespace

FormReport form_report(const core::InputView& input) {
  Reader reader;
  std::visit([&reader](const auto& value) { reader(value); }, input);
  return reader.report();
}

}  // namespace kv::testing
