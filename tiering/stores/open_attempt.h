// OpenAttempt: remembers on the disk that a store is being opened, and how often in a row that did
// not end. Damaged files can make RocksDB end the process by an assertion, at every start again;
// the file `opening` tells the next start. Its length is the number of attempts, so that it needs
// no room on a full disk. Not flushed: only the process ended, not the system.
// Owner: the disk store, while it opens. Threads: none. Cost: a file made and removed.
#pragma once

#include <cstdint>
#include <string>

namespace kv {

class OpenAttempt {
 public:
  // One that cannot be remembered is no reason to be without a disk: it then protects nothing.
  explicit OpenAttempt(const std::string& directory);
  // For who ends the process on purpose while a store may be being opened: that damages nothing.
  static void forget(const std::string& directory);
  OpenAttempt(const OpenAttempt&) = delete;
  OpenAttempt& operator=(const OpenAttempt&) = delete;
  OpenAttempt(OpenAttempt&&) = delete;
  OpenAttempt& operator=(OpenAttempt&&) = delete;
  ~OpenAttempt();  // it ended, well or not

  // The last two did not end. One alone may be a kill, which damages nothing.
  [[nodiscard]] bool has_failed_twice() const { return unended_ >= 2; }

 private:
  std::string path_;
  std::uint64_t unended_ = 0;
};

}  // namespace kv
