#include <array>
#include <cctype>

#include "cachesvc/shell/config.h"

namespace kv::shell {
namespace {

constexpr std::array<std::string_view, 5> kLogLevels = {"debug", "info", "warn", "error", "off"};
constexpr std::array<std::string_view, 3> kDiskIo = {"automatic", "io_uring", "plain"};

constexpr std::uint64_t kKiB = std::uint64_t{1} << 10U;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kTiB = std::uint64_t{1} << 40U;
constexpr std::uint64_t kSecond = 1'000'000'000;

constexpr std::array<ConfigKey, 18> kKeys = {{
    {"service.dir",
     ConfigType::text,
     &Config::dir,
     "<see help>",
     "sockets, locks and data; made with mode 0700. Default: $CACHESVC_DIR, else "
     "$XDG_RUNTIME_DIR/cachesvc, else $HOME/.cache/cachesvc",
     {}},
    {"service.endpoint",
     ConfigType::text,
     &Config::endpoint,
     "<ipc://DIR/service.sock>",
     "where requests arrive: ipc://PATH, at most 107 bytes of path",
     {}},
    {"service.log_level", ConfigType::choice, &Config::log_level, "info",
     "least level that is written to stderr", kLogLevels},
    {"device.bytes",
     ConfigType::bytes,
     &Config::device_bytes,
     "64MiB",
     "memory of the device tier, which runners map",
     {},
     4 * kKiB,
     1'024 * kTiB},
    {"host.bytes",
     ConfigType::bytes,
     &Config::host_bytes,
     "256MiB",
     "memory of the host tier; 0 turns it off",
     {},
     4 * kKiB,
     1'024 * kTiB,
     true},
    {"disk.bytes",
     ConfigType::bytes,
     &Config::disk_bytes,
     "1GiB",
     "payload bytes of the disk tier, in DIR/disk; 0 turns it off",
     {},
     kMiB,
     1'024 * kTiB,
     true},
    {"disk.io", ConfigType::choice, &Config::disk_io, "automatic",
     "how the disk is read and written; automatic tries io_uring first", kDiskIo},
    {"client.lease",
     ConfigType::duration,
     &Config::lease,
     "10s",
     "a client that is silent for so long loses its pins",
     {},
     kSecond,
     3'600 * kSecond},
    {"client.credits",
     ConfigType::count,
     &Config::credits,
     "64",
     "requests of one client without a reply; more get busy",
     {},
     1,
     1'024},
    {"client.capacity",
     ConfigType::count,
     &Config::client_capacity,
     "1024",
     "clients at one time",
     {},
     1,
     65'536},
    {"client.per_user",
     ConfigType::count,
     &Config::clients_per_user,
     "512",
     "clients of one user at one time: the rest of client.capacity is for others, root's tools "
     "for one",
     {},
     1,
     65'536},
    {"client.prompt_tokens",
     ConfigType::count,
     &Config::client_prompt_tokens,
     "33554432",
     "prompt tokens of one client's sequences that have not ended, admitted or not",
     {},
     65'536,
     4'294'967'295},
    {"transfer.workers",
     ConfigType::count,
     &Config::transfer_workers,
     "2",
     "threads that copy between device and host",
     {},
     1,
     64},
    {"transfer.write_through",
     ConfigType::boolean,
     &Config::write_through,
     "true",
     "copy published blocks down at once, not only before they are evicted",
     {}},
    {"limits.message_bytes",
     ConfigType::bytes,
     &Config::message_bytes,
     "1MiB",
     "largest request; a longer one is refused, and over 1MiB ends the connection",
     {},
     64 * kKiB,
     kMiB},
    {"limits.sequences",
     ConfigType::count,
     &Config::sequences,
     "4096",
     "sequences of all clients at one time",
     {},
     1,
     1'048'576},
    {"limits.prompt_tokens",
     ConfigType::count,
     &Config::prompt_tokens,
     "67108864",
     "prompt tokens of all sequences that have not ended; each takes 4 bytes",
     {},
     65'536,
     4'294'967'295},
    {"limits.index_bytes",
     ConfigType::bytes,
     &Config::index_bytes,
     "1GiB",
     "memory for what is known of blocks, 200 to 300 bytes each; a layout of which more would fit "
     "the tiers is refused",
     {},
     kMiB,
     kTiB},
}};

}  // namespace

std::span<const ConfigKey> config_keys() { return kKeys; }

std::string_view config_type_name(ConfigType type) {
  constexpr std::array<std::string_view, 6> kNames = {"text",     "choice", "size",
                                                      "duration", "count",  "boolean"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string environment_name(std::string_view key) {
  std::string name = "CACHESVC_";
  for (const char letter : key) {
    if (letter == '.') {
      name += "__";
    } else {
      name += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    }
  }
  return name;
}

}  // namespace kv::shell
