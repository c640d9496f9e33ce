#include "plugins/client/static_text.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

namespace kv::client {

std::string_view static_text(std::string_view text, std::string_view fallback) {
  if (text.empty()) return {};
  struct Texts {
    std::mutex mutex;
    std::set<std::string, std::less<>> kept;  // nodes: a view stays valid while others are added
  };
  // Never destroyed: errors may be looked at until the very end of the process.
  static Texts& texts = *new Texts;
  std::string clean(text.substr(0, kStaticTextBytesMax));
  std::ranges::replace_if(clean, [](char c) { return c < ' ' || c > '~'; }, '?');
  const std::lock_guard lock(texts.mutex);
  if (const auto found = texts.kept.find(clean); found != texts.kept.end()) return *found;
  if (texts.kept.size() >= kStaticTextsMax) return fallback;
  return *texts.kept.insert(std::move(clean)).first;
}

}  // namespace kv::client
