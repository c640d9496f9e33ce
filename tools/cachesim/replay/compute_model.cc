#include "tools/cachesim/replay/compute_model.h"

#include <algorithm>

#include "allocator/base/check.h"
#include "tools/cachesim/replay/wide.h"

namespace kv::cachesim {
namespace {

// On the line through two points.
std::uint64_t on_line(const TimeCurve::Point& a, const TimeCurve::Point& b, std::uint64_t tokens) {
  const std::uint64_t rise = b.ns > a.ns ? b.ns - a.ns : 0;
  return a.ns + scaled(rise, tokens - a.tokens, b.tokens - a.tokens);
}

std::uint64_t between(const std::vector<TimeCurve::Point>& points, std::uint64_t tokens) {
  const auto above = std::ranges::upper_bound(points, tokens, {}, &TimeCurve::Point::tokens);
  const auto second = above == points.end() ? above - 1 : above;
  return on_line(*(second - 1), *second, tokens);
}

}  // namespace

std::uint64_t TimeCurve::at(std::uint64_t tokens) const {
  KV_CHECK(points.size() >= 2);
  if (tokens <= points.front().tokens) return points.front().ns;
  return between(points, tokens);
}

std::uint64_t TimeCurve::at_quadratic(std::uint64_t tokens) const {
  KV_CHECK(points.size() >= 2);
  const Point& first = points.front();
  const Point& last = points.back();
  if (tokens < first.tokens) return scaled(first.ns, tokens, first.tokens);
  if (tokens <= last.tokens) return between(points, tokens);
  return scaled(scaled(last.ns, tokens, last.tokens), tokens, last.tokens);
}

std::uint64_t ComputeModel::attention_ns(std::uint64_t begin, std::uint64_t end) const {
  if (options_.table == nullptr) return 0;
  const TimeCurve& curve = options_.table->attention;
  const std::uint64_t before = curve.at_quadratic(begin);
  const std::uint64_t after = curve.at_quadratic(end);
  return after > before ? after - before : 0;
}

Duration ComputeModel::step_time(std::uint64_t rows, std::uint64_t attention_ns,
                                 std::uint64_t decode_context) const {
  if (options_.table == nullptr) return {};
  std::uint64_t ns = rows == 0 ? 0 : options_.table->linear.at(rows);
  ns += attention_ns;
  if (decode_context > 0 && options_.memory_bytes_per_second > 0) {
    ns += scaled(decode_context * options_.token_bytes, kNsPerSecond,
                 options_.memory_bytes_per_second);
  }
  ns = scaled(ns, options_.slowdown_thousandths, 1'000);
  return options_.step_overhead + Duration(static_cast<Duration::rep>(ns));
}

}  // namespace kv::cachesim
