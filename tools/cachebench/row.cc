#include "tools/cachebench/row.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace kv::cachebench {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 100 ? "%.2f" : "%.0f", value);
  return text;
}

}  // namespace

bool Report::ok() const {
  return std::ranges::all_of(rows, [](const Row& row) { return row.ok(); });
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : report.rows) {
    rows.push_back({{"name", row.name},
                    {"unit", row.unit},
                    {"value", row.value},
                    {"limit_name", row.limit_name},
                    {"limit", row.limit},
                    {"ratio", row.ratio},
                    {"bar", row.bar},
                    {"ok", row.ok()}});
  }
  const nlohmann::ordered_json whole = {
      {"rows", rows},
      {"machine", {{"processor", report.processor}, {"processors", report.processor_count}}}};
  return whole.dump(2);
}

std::string to_table(const Report& report) {
  char line[256];
  std::snprintf(line, sizeof line, "%-28s %10s %-12s %10s  %-28s %7s %7s\n", "name", "value",
                "unit", "limit", "limited by", "ratio", "bar");
  std::string text = line;
  for (const Row& row : report.rows) {
    std::snprintf(line, sizeof line, "%-28s %10s %-12s %10s  %-28s %7s %7s%s\n", row.name.c_str(),
                  number(row.value).c_str(), row.unit.c_str(), number(row.limit).c_str(),
                  row.limit_name.c_str(), number(row.ratio).c_str(), number(row.bar).c_str(),
                  row.ok() ? "" : "  missed");
    text += line;
  }
  std::snprintf(line, sizeof line, "\n%s, %u processors\n", report.processor.c_str(),
                report.processor_count);
  return text + line;
}

}  // namespace kv::cachebench
