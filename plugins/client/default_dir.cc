#include "plugins/client/default_dir.h"

#include <cstdlib>
#include <string_view>

namespace kv::client {
namespace {

constexpr std::string_view kIpcScheme = "ipc://";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Result<std::string> default_dir() {
  for (const char* name : {"CACHESVC_SERVICE__DIR", "CACHESVC_DIR"}) {
    if (const auto dir = environment(name); !dir.empty()) return std::string(dir);
  }
  if (const auto runtime = environment("XDG_RUNTIME_DIR"); !runtime.empty()) {
    return std::string(runtime) + "/cachesvc";
  }
  if (const auto home = environment("HOME"); !home.empty()) {
    return std::string(home) + "/.cache/cachesvc";
  }
  return Error{ErrorCode::unavailable, "no default directory: name one, or set CACHESVC_DIR",
               "dir"};
}

Result<Addresses> find_addresses(const std::string& dir, const std::string& endpoint) {
  Addresses addresses;
  if (endpoint.empty()) {
    std::string base = dir;
    if (base.empty()) {
      KV_TRY(base, default_dir());
    }
    addresses.service = std::string(kIpcScheme) + base + "/service.sock";
    addresses.attach = base + "/attach.sock";
  } else {
    if (!endpoint.starts_with(kIpcScheme)) {
      return Error{ErrorCode::unsupported, "only ipc:// endpoints have an attach socket",
                   "endpoint"};
    }
    addresses.service = endpoint;
    const std::string path = endpoint.substr(kIpcScheme.size());
    const auto slash = path.rfind('/');
    addresses.attach = (slash == std::string::npos ? "." : path.substr(0, slash)) + "/attach.sock";
  }
  const bool fits = addresses.service.size() - kIpcScheme.size() <= kSocketPathBytesMax &&
                    addresses.attach.size() <= kSocketPathBytesMax;
  if (!fits) return Error{ErrorCode::too_large, "a socket path has at most 107 bytes", "dir"};
  return addresses;
}

}  // namespace kv::client
