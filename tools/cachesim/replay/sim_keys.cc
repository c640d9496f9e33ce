// The table of SIM.toml's keys.
#include <array>

#include "tools/cachesim/replay/sim_config.h"

namespace kv::cachesim {
namespace {

constexpr std::string_view kModes[] = {"timed", "counts"};
constexpr std::string_view kArrivals[] = {"open", "closed"};
constexpr std::string_view kRouters[] = {"prefix", "random"};

constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62U;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 55U;
constexpr std::uint64_t kRateMax = std::uint64_t{1} << 43U;  // 8 TiB a second
constexpr std::uint64_t kSecond = 1'000'000'000;

using C = SimConfig;
constexpr SimKey kKeys[] = {
    {"run.mode", SimType::choice, &C::mode, "timed",
     "timed, or counts: one request at a time, nothing takes time, as hits counts", kModes},
    {"run.seed", SimType::count, &C::seed, "1", "of the random router", {}, 0, kNoLimit},
    {"device.capacity",
     SimType::bytes,
     &C::device_bytes,
     "64GiB",
     "memory for keys and values of an instance, all its devices together",
     {},
     1,
     kBytesMax},
    {"host.capacity",
     SimType::bytes,
     &C::host_bytes,
     "0",
     "host tier; 0 turns it off",
     {},
     0,
     kBytesMax},
    {"host.load_bandwidth",
     SimType::rate,
     &C::load_rate,
     "50GiB/s",
     "host to device, shared by all transfers; 0: bytes take no time",
     {},
     0,
     kRateMax},
    {"host.save_bandwidth",
     SimType::rate,
     &C::save_rate,
     "50GiB/s",
     "device to host",
     {},
     0,
     kRateMax},
    {"host.latency",
     SimType::duration,
     &C::host_latency_ns,
     "10us",
     "before the bytes of a transfer between host and device move",
     {},
     0,
     kSecond},
    {"disk.capacity",
     SimType::bytes,
     &C::disk_bytes,
     "0",
     "disk tier, behind a host tier; 0 turns it off",
     {},
     0,
     kBytesMax},
    {"disk.read_bandwidth",
     SimType::rate,
     &C::read_rate,
     "6GiB/s",
     "disk to host",
     {},
     0,
     kRateMax},
    {"disk.write_bandwidth",
     SimType::rate,
     &C::write_rate,
     "4GiB/s",
     "host to disk",
     {},
     0,
     kRateMax},
    {"disk.latency",
     SimType::duration,
     &C::disk_latency_ns,
     "100us",
     "before the bytes of a transfer between disk and host move",
     {},
     0,
     kSecond},
    {"compute.gpu", SimType::text, &C::gpu, "h100_sxm",
     "h100_sxm, h200_sxm, or none: computing takes no time"},
    {"compute.model", SimType::text, &C::model, "Llama-3.1-8B", "Llama-3.1-8B, Llama-3.1-70B"},
    {"compute.tensor_parallel",
     SimType::count,
     &C::tensor_parallel,
     "1",
     "devices of an instance: 1 for 8B, 4 or 8 for 70B",
     {},
     1,
     1'024},
    {"compute.weights", SimType::text, &C::weights, "bfloat16", "bfloat16, fp8"},
    {"compute.token_bytes",
     SimType::bytes,
     &C::token_bytes,
     "0",
     "keys and values of a token, all devices together; 0: the model's, in 16 bits",
     {},
     0,
     std::uint64_t{1} << 30U},
    {"compute.memory_bandwidth",
     SimType::rate,
     &C::memory_rate,
     "0",
     "of one device, for decoding; 0: the GPU's",
     {},
     0,
     kRateMax},
    {"compute.step_overhead",
     SimType::duration,
     &C::step_overhead_ns,
     "0",
     "of each step, for the scheduler",
     {},
     0,
     kSecond},
    {"compute.slowdown",
     SimType::factor,
     &C::slowdown_thousandths,
     "1",
     "of an engine against its kernels; 1.45 is usual",
     {},
     1,
     1'000'000},
    {"instance.count",
     SimType::count,
     &C::instances,
     "1",
     "machines of this kind, each with tiers of its own",
     {},
     1,
     1'024},
    {"instance.router", SimType::choice, &C::router, "prefix",
     "which machine gets a request: the one with the least left to compute, or any", kRouters},
    {"instance.sequences",
     SimType::count,
     &C::sequences,
     "256",
     "admitted at one time",
     {},
     1,
     65'536},
    {"instance.step_tokens",
     SimType::count,
     &C::step_tokens,
     "8192",
     "of one step",
     {},
     1,
     16'777'216},
    {"arrivals.mode", SimType::choice, &C::arrivals, "open",
     "open: at the trace's times; closed: as others finish", kArrivals},
    {"arrivals.in_flight",
     SimType::count,
     &C::in_flight,
     "32",
     "closed: requests at one time",
     {},
     1,
     1'048'576},
    {"arrivals.speed",
     SimType::factor,
     &C::speed_thousandths,
     "1",
     "open: the trace's times are divided by it",
     {},
     1,
     1'000'000'000},
};

}  // namespace

std::span<const SimKey> sim_keys() { return kKeys; }

std::string sim_keys_as_help() {
  constexpr std::size_t kNameWidth = 26;
  constexpr std::size_t kDefaultWidth = 14;
  std::string text = "Keys of SIM.toml (sections in [brackets] there), their defaults, meaning:\n";
  for (const SimKey& key : sim_keys()) {
    std::string line = "  " + std::string(key.name);
    line.resize(std::max(line.size() + 1, kNameWidth), ' ');
    line += key.default_text;
    line.resize(std::max(line.size() + 1, kNameWidth + kDefaultWidth), ' ');
    text += line + std::string(key.help) + "\n";
  }
  return text;
}

}  // namespace kv::cachesim
