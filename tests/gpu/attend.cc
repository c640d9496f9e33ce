// What the cases are made of: batches, runs through the C ABI, and the reference.
#include <algorithm>
#include <limits>

#include "tests/gpu/cases.h"

namespace kv::gpu {
namespace {

std::vector<std::uint32_t> starts_of(const std::vector<Sequence>& sequences) {
  std::vector<std::uint32_t> starts{0};
  for (const Sequence& s : sequences) starts.push_back(starts.back() + s.rows);
  return starts;
}

std::vector<std::uint32_t> lengths_of(const std::vector<Sequence>& sequences) {
  std::vector<std::uint32_t> lengths;
  for (const Sequence& s : sequences) lengths.push_back(s.length);
  return lengths;
}

std::vector<std::uint32_t> tables_of(const std::vector<Sequence>& sequences) {
  std::size_t stride = 1;
  for (const Sequence& s : sequences) stride = std::max(stride, s.table.size());
  std::vector<std::uint32_t> table;
  for (const Sequence& s : sequences) {
    const std::size_t end = table.size() + stride;
    table.insert(table.end(), s.table.begin(), s.table.end());
    table.resize(end, 0xFFFFFFFFU);  // never read
  }
  return table;
}

std::vector<std::uint32_t> queries_of(const Shape& shape, const std::vector<Sequence>& sequences) {
  std::vector<std::uint32_t> bits;
  for (const Sequence& s : sequences) {
    for (std::uint32_t t = s.length - s.rows; t < s.length; ++t) {
      Prng prng((s.seed << 40U) + 77'000'000U + t);
      for (std::uint32_t i = 0; i < shape.query_heads * shape.dim; ++i) {
        bits.push_back(random_bits(prng, shape.query_dtype));
      }
    }
  }
  return bits;
}

std::vector<std::byte> packed(const std::vector<std::uint32_t>& bits, std::uint32_t dtype) {
  std::vector<std::byte> bytes(bits.size() * bytes_of(dtype));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    store(bytes.data() + i * bytes_of(dtype), bits[i], dtype);
  }
  return bytes;
}

}  // namespace

void Context::expect(bool holds, const std::string& otherwise) {
  ++checks_;
  if (!holds) failures_.push_back(what_ + ": " + otherwise);
}

void Context::expect_ok(std::int32_t status, const std::string& call) {
  expect(status == KV_KERNEL_OK, call + " returned " + std::to_string(status));
}

void Context::expect_near(double got, double want, double tolerance, const std::string& what) {
  ++checks_;
  const double error = std::fabs(got - want);
  if (error <= tolerance) {
    worst_ = std::max(worst_, error / tolerance);
  } else if (failures_.size() < 20) {
    failures_.push_back(what_ + ": " + what + ": " + std::to_string(got) + ", not " +
                        std::to_string(want));
  }
}

Batch::Batch(Context& context, const Shape& shape, const std::vector<Sequence>& sequences)
    : row_start(starts_of(sequences)),
      kv_length(lengths_of(sequences)),
      table(tables_of(sequences)),
      query_bits(queries_of(shape, sequences)),
      row_start_there(context.device(), row_start),
      kv_length_there(context.device(), kv_length),
      table_there(context.device(), table),
      query_bytes(packed(query_bits, shape.query_dtype)),
      query_there(context.device(), query_bytes) {
  const auto count = static_cast<std::uint32_t>(sequences.size());
  host = {sizeof(host),     count,
          row_start.back(), static_cast<std::uint32_t>(table.size() / count),
          row_start.data(), kv_length.data(),
          table.data()};
  device = host;
  device.row_start = row_start_there.data();
  device.kv_length = kv_length_there.data();
  device.table = table_there.data();
}

Attended attend(Context& context, const Shape& shape, const Pool& pool, const Batch& batch,
                std::uint32_t layer, const Way& way) {
  const kv_kernel& kernel = context.kernel();
  const kv_kernel_problem problem = problem_of(shape, KV_KERNEL_OP_EXTEND);
  context.expect_ok(kernel.supports(&problem, nullptr, 0), "supports");
  kv_kernel_plan plan{};
  plan.struct_size = sizeof(plan);
  context.expect_ok(kernel.prepare(&problem, &batch.host, &plan), "prepare");
  const kv_kernel_bounds bounds{sizeof(bounds), batch.host.sequence_count, batch.host.row_count,
                                *std::max_element(batch.kv_length.begin(), batch.kv_length.end())};
  kv_kernel_workspace_bytes bytes{};
  bytes.struct_size = sizeof(bytes);
  context.expect_ok(kernel.workspace(&problem, &bounds, &bytes), "workspace");
  const Buffer<std::byte> workspace(
      context.device(), std::vector<std::byte>(way.workspace ? bytes.device : 0, std::byte{0xFF}));
  const std::size_t row_heads = std::size_t{batch.host.row_count} * shape.query_heads;
  const std::size_t output_bytes = row_heads * shape.dim * bytes_of(shape.output_dtype);
  Buffer<std::byte> output(context.device(), std::vector<std::byte>(output_bytes, std::byte{0xFF}));
  Buffer<float> lse(context.device(),
                    std::vector<float>(row_heads, std::numeric_limits<float>::quiet_NaN()));
  const kv_kernel_tensors tensors{sizeof(tensors), layer, batch.query_there.data(), output.data(),
                                  lse.data()};
  context.expect_ok(kernel.run(&problem, &plan, &pool.view(), &batch.device, &tensors,
                               way.workspace ? workspace.data() : nullptr, nullptr),
                    "run");
  const std::string error = context.device().synchronize();
  context.expect(error.empty(), error);
  return {output.get(), lse.get()};
}

Expected expected(const Shape& shape, const Pool& pool, const std::vector<Sequence>& sequences,
                  const Batch& batch, std::uint32_t layer) {
  Expected result;
  const double scale = double{problem_of(shape, KV_KERNEL_OP_EXTEND).scale};
  std::size_t next_query = 0;
  for (const Sequence& s : sequences) {
    for (std::uint32_t r = 0; r < s.rows * shape.query_heads; ++r) {
      const std::uint32_t position = s.length - s.rows + r / shape.query_heads;
      const std::uint32_t kv_head = r % shape.query_heads / (shape.query_heads / shape.kv_heads);
      std::vector<double> query(shape.dim);
      for (double& q : query) q = decode(batch.query_bits[next_query++], shape.query_dtype);
      std::vector<std::uint32_t> seen;
      for (std::uint32_t t = 0; t <= position; ++t) {
        const bool in_window = shape.window == 0 || t + shape.window > position;
        if (in_window || t < shape.sinks) seen.push_back(t);
      }
      const auto value = [&](unsigned plane, std::uint32_t t, std::uint32_t c) {
        return pool.value(s.table[t / shape.block_tokens], layer, plane, kv_head,
                          t % shape.block_tokens, c);
      };
      std::vector<double> scores;
      for (const std::uint32_t t : seen) {
        double sum = 0;
        for (std::uint32_t c = 0; c < shape.dim; ++c) sum += query[c] * value(0, t, c);
        scores.push_back(sum * scale);
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      std::vector<double> out(shape.dim, 0.0);
      for (std::size_t i = 0; i < seen.size(); ++i) {
        const double weight = std::exp(scores[i] - max);
        total += weight;
        for (std::uint32_t c = 0; c < shape.dim; ++c) out[c] += weight * value(1, seen[i], c);
      }
      for (const double o : out) result.output.push_back(o / total);
      result.lse.push_back(max + std::log(total));
    }
  }
  return result;
}

void expect_attended(Context& context, const Shape& shape, const Attended& got,
                     const Expected& want) {
  // Values lie in [-1, 1): half a unit in the last place of the output, and the sums' own error.
  const double rounding = std::ldexp(1.0, -format_of(shape.output_dtype).fraction_bits - 1);
  const double tolerance = 3e-6 + (shape.output_dtype == KV_KERNEL_DTYPE_F32 ? 0 : rounding);
  const std::size_t element = bytes_of(shape.output_dtype);
  context.expect(got.output.size() == want.output.size() * element, "output has another size");
  for (std::size_t i = 0; i < want.output.size(); ++i) {
    const double value =
        decode(load(got.output.data() + i * element, shape.output_dtype), shape.output_dtype);
    context.expect_near(value, want.output[i], tolerance, "output " + std::to_string(i));
  }
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    context.expect_near(double{got.lse[i]}, want.lse[i], 1e-5, "lse " + std::to_string(i));
  }
}

void expect_same(Context& context, const Attended& got, const Attended& want,
                 const std::string& what) {
  context.expect(got.output == want.output, what + ": output differs");
  context.expect(
      got.lse.size() == want.lse.size() &&
          std::memcmp(got.lse.data(), want.lse.data(), got.lse.size() * sizeof(float)) == 0,
      what + ": lse differs");
}

std::string text_of(const Shape& shape) {
  return "dtype " + std::to_string(shape.dtype) + " dim " + std::to_string(shape.dim) + " heads " +
         std::to_string(shape.query_heads) + "/" + std::to_string(shape.kv_heads) + " block " +
         std::to_string(shape.block_tokens) + " window " + std::to_string(shape.window) + "+" +
         std::to_string(shape.sinks) +
         (shape.order == Order::head_token ? " head-token" : " token-head");
}

}  // namespace kv::gpu
