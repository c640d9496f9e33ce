// From SIM.toml to a replay: tables by their names, blocks for bytes.
#include <algorithm>

#include "cachesvc/shell/quantity.h"
#include "tools/cachesim/replay/sim_config.h"

namespace kv::cachesim {
namespace {

struct Named {
  std::string_view name;
  std::uint64_t value;
};
// Keys and values of a token in 16 bits: 2 x layers x heads x 128 channels x 2 bytes.
constexpr Named kTokenBytes[] = {{"Llama-3.1-8B", 2ULL * 32 * 8 * 128 * 2},
                                 {"Llama-3.1-70B", 2ULL * 80 * 8 * 128 * 2}};
// NVIDIA's data sheets: 3.35 and 4.8 TB/s.
constexpr Named kMemoryRates[] = {{"h100_sxm", 3'350'000'000'000}, {"h200_sxm", 4'800'000'000'000}};

std::uint64_t value_of(std::span<const Named> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Named::name);
  return found == table.end() ? 0 : found->value;
}

const ComputeTable* find_table(const SimConfig& config) {
  const auto same = [&](const ComputeTable& table) {
    return table.gpu == config.gpu && table.model == config.model &&
           table.weights == config.weights && table.tensor_parallel == config.tensor_parallel;
  };
  const auto& tables = known_compute_tables();
  const auto found = std::ranges::find_if(tables, same);
  return found == tables.end() ? nullptr : &*found;
}

std::string known_tables() {
  std::string text;
  for (const ComputeTable& table : known_compute_tables()) {
    text += (text.empty() ? "" : "; ") + table.gpu + " " + table.model + " " +
            std::to_string(table.tensor_parallel) + " " + table.weights;
  }
  return text;
}

void resolve_compute(const SimConfig& config, std::uint64_t token_bytes, ResolvedReplay& resolved) {
  ComputeModel::Options& compute = resolved.options.compute;
  compute.step_overhead = Duration(static_cast<Duration::rep>(config.step_overhead_ns));
  compute.slowdown_thousandths = config.slowdown_thousandths;
  if (config.gpu == "none") return;
  compute.table = find_table(config);
  if (compute.table == nullptr) {
    resolved.problems.push_back(
        {"compute",
         "no table for " + config.gpu + " " + config.model + " " +
             std::to_string(config.tensor_parallel) + " " + config.weights,
         "use gpu, model, tensor_parallel and weights of one of: " + known_tables()});
    return;
  }
  compute.token_bytes = token_bytes / config.tensor_parallel;
  compute.memory_bytes_per_second =
      config.memory_rate > 0 ? config.memory_rate : value_of(kMemoryRates, config.gpu);
}

void resolve_links(const SimConfig& config, ReplayOptions& options) {
  const Duration host(static_cast<Duration::rep>(config.host_latency_ns));
  const Duration disk(static_cast<Duration::rep>(config.disk_latency_ns));
  const auto link = [&](LinkName name) -> LinkOptions& {
    return options.links[static_cast<std::size_t>(name)];
  };
  if (options.counts_only) return;
  link(LinkName::host_to_device) = {config.load_rate, host};
  link(LinkName::device_to_host) = {config.save_rate, host};
  link(LinkName::disk_to_host) = {config.read_rate, disk};
  link(LinkName::host_to_disk) = {config.write_rate, disk};
}

}  // namespace

ResolvedReplay resolve(const SimConfig& config, const Trace& trace) {
  constexpr std::uint64_t kBlocksMax = std::uint64_t{1} << 28U;  // of a tier, in the Engine
  ResolvedReplay resolved;
  ReplayOptions& options = resolved.options;
  options.counts_only = config.mode == "counts";
  const std::uint64_t token_bytes =
      config.token_bytes > 0 ? config.token_bytes : value_of(kTokenBytes, config.model);
  if (token_bytes == 0) {
    resolved.problems.push_back({"compute.token_bytes",
                                 "the bytes of a token are not known for " + config.model,
                                 "say them"});
    return resolved;
  }
  options.block_bytes = token_bytes * trace.block_tokens;
  const std::array<std::uint64_t, kTiers> bytes = {config.device_bytes, config.host_bytes,
                                                   config.disk_bytes};
  for (std::size_t t = 0; t < kTiers; ++t) {
    const std::uint64_t blocks = std::min(bytes[t] / options.block_bytes, kBlocksMax - 1);
    options.capacity_blocks[t] = static_cast<std::uint32_t>(blocks);
  }
  if (options.capacity_blocks[0] == 0) {
    resolved.problems.push_back({"device.capacity", "is less than one block of the trace",
                                 "give it at least " + shell::format_bytes(options.block_bytes)});
  }
  if (config.disk_bytes > 0 && options.capacity_blocks[1] == 0) {
    resolved.problems.push_back({"disk.capacity", "blocks reach the disk through the host tier",
                                 "set host.capacity, or turn the disk tier off with 0"});
  }
  options.sequences_max = static_cast<std::uint32_t>(config.sequences);
  options.step_tokens_max = static_cast<std::uint32_t>(config.step_tokens);
  options.speed_thousandths = config.speed_thousandths;
  options.in_flight =
      config.arrivals == "closed" ? static_cast<std::uint32_t>(config.in_flight) : 0;
  options.machines = static_cast<std::uint32_t>(config.instances);
  options.router = config.router == "random" ? RouterKind::random : RouterKind::prefix;
  options.seed = config.seed;
  resolve_links(config, options);
  resolve_compute(config, token_bytes, resolved);
  return resolved;
}

}  // namespace kv::cachesim
