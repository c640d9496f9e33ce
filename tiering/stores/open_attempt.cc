#include "tiering/stores/open_attempt.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiering/stores/plain_file.h"

namespace kv {

namespace {

std::string path_in(const std::string& directory) { return directory + "/opening"; }

}  // namespace

void OpenAttempt::forget(const std::string& directory) { ::unlink(path_in(directory).c_str()); }

OpenAttempt::OpenAttempt(const std::string& directory) : path_(path_in(directory)) {
  const FileDescriptor file = open_plain_file(path_, O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
  struct stat status{};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) return;
  if (::ftruncate(file.get(), status.st_size + 1) != 0) return;
  unended_ = static_cast<std::uint64_t>(status.st_size);
}

OpenAttempt::~OpenAttempt() { ::unlink(path_.c_str()); }

}  // namespace kv
