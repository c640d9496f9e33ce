// One figure of cachebench: a value, the limit that was measured in the same run, their ratio and
// the bar that the ratio must meet. Plain values. Threads: none. Cost: none.
#pragma once

#include <string>
#include <vector>

namespace kv::cachebench {

struct Row {
  std::string name;
  std::string unit;  // of value and limit
  double value = 0;
  std::string limit_name;
  double limit = 0;
  double ratio = 0;  // value / limit; of times, the median of the pairs' ratios
  double bar = 0;    // the most that the ratio may be
  [[nodiscard]] bool ok() const { return ratio <= bar; }
};

struct Report {
  std::vector<Row> rows;
  std::string processor;  // its name
  unsigned processor_count = 0;
  [[nodiscard]] bool ok() const;
};

// {"rows": [{"name", "unit", "value", "limit_name", "limit", "ratio", "bar", "ok"}], "machine":
// {...}}
[[nodiscard]] std::string to_json(const Report& report);
[[nodiscard]] std::string to_table(const Report& report);

}  // namespace kv::cachebench
