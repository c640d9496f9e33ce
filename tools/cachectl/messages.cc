#include "tools/cachectl/messages.h"

#include <filesystem>

#include "plugins/client/default_dir.h"
#include "plugins/client/loss.h"
#include "tools/cachectl/prompt.h"

namespace kv::cachectl {
namespace {

std::string describe(const Error& error) {
  std::string text(error.reason);
  if (!error.field.empty()) text += " (" + std::string(error.field) + ")";
  return text;
}

std::string disk_of(const client::Addresses& addresses) {
  return (std::filesystem::path(addresses.attach).parent_path() / "disk").string();
}

std::string remedy(const Error& error, const client::Addresses& addresses) {
  switch (error.code) {
    case ErrorCode::unavailable:
      if (error.field == "disk") return "look at the service's log, and at " + disk_of(addresses);
      if (error.reason.starts_with("no pool")) return "let a model runner connect to it first";
      return "look at the service's log";
    case ErrorCode::deadline:
      return "it is busy or hung: try again with a longer --timeout, or restart it";
    case ErrorCode::denied:
      return "run this as the user of the service, or as root";
    case ErrorCode::stale:
      return "epochs only rise: give a higher one, or 0 for the next";
    case ErrorCode::exhausted:
    case ErrorCode::busy:
      if (client::limit_key(error).empty()) return "try again later";
      return "try again later, or raise " + std::string(client::limit_key(error)) +
             " of the service";
    case ErrorCode::too_large:
      return "give less";
    case ErrorCode::corrupt:
    case ErrorCode::mismatch:
    case ErrorCode::unsupported:
      return "check that cachectl and the service are of the same version";
    case ErrorCode::ok:
    case ErrorCode::not_found:
    case ErrorCode::exists:
    case ErrorCode::invalid:
      break;
  }
  return "see cachectl --help";
}

}  // namespace

std::string address_message(const CommandLine& line, const Error& error) {
  if (error.code == ErrorCode::unavailable) {
    return "no default directory, HOME is empty or not set; give --dir, or set CACHESVC_DIR";
  }
  const std::string& given = line.endpoint.empty() ? line.dir : line.endpoint;
  return (given.empty() ? "the default directory" : given) + ": " + describe(error) +
         "; give --dir another one";
}

std::string service_message(const CommandLine& line, const Error& error) {
  if (const auto lost = client::loss_text(error, line.dir, line.endpoint)) {
    return lost->what + "; " + lost->remedy;
  }
  const auto addresses = client::find_addresses(line.dir, line.endpoint);
  if (!addresses) return address_message(line, addresses.error());
  return addresses->service + ": " + describe(error) + "; " + remedy(error, *addresses);
}

std::string prompt_message(const CommandLine& line, const Error& error) {
  if (error.field == kTokensField) {
    const bool is_path = error.code == ErrorCode::not_found;
    return "--tokens " + line.tokens.value_or("") + ": " + std::string(error.reason) +
           (is_path ? "; check the path" : "") + "; see cachectl " +
           (line.command == Command::why ? "why" : "lookup") + " --help";
  }
  const std::string text = "--model " + line.model + ": " + describe(error);
  switch (error.code) {
    case ErrorCode::not_found:
      return text + "; check the path";
    case ErrorCode::exhausted:
      return text + "; free some memory";
    case ErrorCode::corrupt:
      return text + "; get the file anew";
    default:
      return text + "; give another folder";
  }
}

}  // namespace kv::cachectl
