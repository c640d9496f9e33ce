// The tables of measured kernels: one row a number of tokens, in milliseconds with decimals.
#include <array>
#include <charconv>
#include <optional>

#include "allocator/base/check.h"
#include "tools/cachesim/replay/compute_model.h"

namespace kv::cachesim {
namespace {

constexpr std::string_view kHeader =
    "system,model,tp,weight_dtype,new_tokens,total_ms,gemm_ms,attention_ms,elementwise_est_ms,"
    "flops_total,tflops_per_gpu";
enum Column : std::uint8_t { gpu, model, tp, weights, tokens, total, gemm, attention, element };
constexpr std::size_t kColumns = 11;

using Fields = std::array<std::string_view, kColumns>;

std::optional<Fields> fields_of(std::string_view line) {
  Fields fields;
  for (std::size_t i = 0; i < kColumns; ++i) {
    const std::size_t end = line.find(',');
    if ((end == std::string_view::npos) != (i + 1 == kColumns)) return std::nullopt;
    fields[i] = line.substr(0, end);
    if (end != std::string_view::npos) line.remove_prefix(end + 1);
  }
  return fields;
}

std::optional<std::uint64_t> whole(std::string_view text) {
  std::uint64_t value = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// "12.345" milliseconds, in whole nanoseconds.
std::optional<std::uint64_t> ns_of_ms(std::string_view text) {
  constexpr std::size_t kDecimals = 6;
  const std::size_t point = std::min(text.find('.'), text.size());
  const auto ms = whole(text.substr(0, point));
  std::string decimals(text.substr(std::min(point + 1, text.size())));
  if (decimals.size() > kDecimals) return std::nullopt;
  decimals.resize(kDecimals, '0');
  const auto part = whole(decimals);
  if (!ms || !part || *ms > 1'000'000'000) return std::nullopt;
  return *ms * 1'000'000 + *part;
}

bool same_table(const ComputeTable& table, const Fields& row, std::uint64_t parallel) {
  return table.gpu == row[gpu] && table.model == row[model] && table.weights == row[weights] &&
         table.tensor_parallel == parallel;
}

Result<void> add_row(const Fields& row, std::vector<ComputeTable>& tables) {
  const auto parallel = whole(row[tp]);
  const auto count = whole(row[tokens]);
  const auto gemm_ns = ns_of_ms(row[gemm]);
  const auto attention_ns = ns_of_ms(row[attention]);
  const auto element_ns = ns_of_ms(row[element]);
  if (!parallel || *parallel == 0 || *parallel > 1'024 || !count || *count == 0 || !gemm_ns ||
      !attention_ns || !element_ns) {
    return Error{ErrorCode::invalid, "a row of the compute table is no row of numbers", "FILE"};
  }
  if (tables.empty() || !same_table(tables.back(), row, *parallel)) {
    tables.push_back({std::string(row[gpu]),
                      std::string(row[model]),
                      std::string(row[weights]),
                      static_cast<std::uint32_t>(*parallel),
                      {},
                      {}});
  }
  ComputeTable& table = tables.back();
  if (!table.linear.points.empty() && table.linear.points.back().tokens >= *count) {
    return Error{ErrorCode::invalid, "rows of a compute table are not in the order of tokens",
                 "FILE"};
  }
  table.linear.points.push_back({*count, *gemm_ns + *element_ns});
  table.attention.points.push_back({*count, *attention_ns});
  return {};
}

}  // namespace

Result<std::vector<ComputeTable>> parse_compute_tables(std::string_view csv) {
  std::vector<ComputeTable> tables;
  bool header = true;
  while (!csv.empty()) {
    const std::size_t end = std::min(csv.find('\n'), csv.size());
    std::string_view line = csv.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (header && line != kHeader) {
      return Error{ErrorCode::invalid, "not the columns of a compute table", "FILE"};
    }
    if (!std::exchange(header, false) && !line.empty()) {
      const auto row = fields_of(line);
      if (!row) return Error{ErrorCode::invalid, "a row of the compute table is cut off", "FILE"};
      KV_TRY_VOID(add_row(*row, tables));
    }
  }
  for (const ComputeTable& table : tables) {
    if (table.linear.points.size() < 2) {
      return Error{ErrorCode::invalid, "a compute table needs two rows", "FILE"};
    }
  }
  return tables;
}

const std::vector<ComputeTable>& known_compute_tables() {
  static const std::vector<ComputeTable> tables =
      parse_compute_tables(prefill_kernel_times()).value();
  return tables;
}

}  // namespace kv::cachesim
