#include "cachesvc/shell/service_dir.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cachesvc/shell/unix_address.h"

namespace kv::shell {
namespace {

std::string system_text(int code) { return std::generic_category().message(code); }

// What to do about a file in this directory that cannot be made, read or removed.
std::string remedy_for(int code, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (code == ENOENT || code == ENOTDIR) return "make the directory " + folder;
  if (code == EROFS) return "give another directory: " + folder + " is read-only";
  if (code == ENOSPC || code == EDQUOT) return "make room there, or give another directory";
  return "check the owner and mode of " + folder;
}

StartProblem in_use(const std::string& path) {
  return {"address in use: another service runs on " + path,
          "stop it, or give this one another --dir"};
}

// A directory that holds something else was made for another purpose, with a mode of its own.
bool is_ours(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::is_empty(dir, error) || fs::exists(dir + "/service.lock", error);
}

// mkdir under the usual umask leaves mode 0755: whoever is on the machine then reaches the sockets.
std::optional<StartProblem> close_to_others(const std::string& dir) {
  if (!is_ours(dir)) {
    return StartProblem{dir + " is open to others and holds other files than a service's",
                        "chmod 0700 " + dir + ", or give --dir a directory of its own"};
  }
  if (chmod(dir.c_str(), S_IRWXU) != 0) {
    return StartProblem{dir + " is open to others and cannot be closed: " + system_text(errno),
                        "chmod 0700 " + dir};
  }
  return std::nullopt;
}

std::optional<StartProblem> make_directory(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (const fs::path parent = fs::path(dir).parent_path(); !parent.empty()) {
    fs::create_directories(parent, error);
  }
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return StartProblem{dir + " cannot be made: " + system_text(errno),
                        "give --dir a directory that this user may make"};
  }
  struct stat status{};
  if (stat(dir.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return StartProblem{dir + " is no directory", "give --dir another path"};
  }
  if (status.st_uid != geteuid() && geteuid() != 0) {
    return StartProblem{dir + " belongs to another user", "give --dir a directory of your own"};
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return StartProblem{dir + " can be written by others", "chmod 0700 " + dir};
  }
  if ((status.st_mode & S_IRWXO) != 0) return close_to_others(dir);
  return std::nullopt;
}

// The kernel drops the lock when the process ends, however it ends.
std::variant<FileDescriptor, StartProblem> take_lock(const std::string& path,
                                                     const std::string& locked) {
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) {
    const int code = errno;
    return StartProblem{path + " cannot be opened: " + system_text(code), remedy_for(code, path)};
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return in_use(locked);
  return file;
}

bool is_listened_on(const std::string& path, int type) {
  const FileDescriptor probe(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = unix_address(path);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return true;
  }
  return errno != ECONNREFUSED && errno != ENOENT;
}

std::optional<StartProblem> clear_socket(const std::string& path, int type) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    const int code = errno;
    return StartProblem{path + " cannot be read: " + system_text(code), remedy_for(code, path)};
  }
  if (!S_ISSOCK(status.st_mode)) {
    return StartProblem{path + " exists and is no socket", "move it away, or give another --dir"};
  }
  if (is_listened_on(path, type)) return in_use(path);
  if (unlink(path.c_str()) != 0) {
    const int code = errno;
    return StartProblem{path + " cannot be removed: " + system_text(code), remedy_for(code, path)};
  }
  return std::nullopt;
}

}  // namespace

std::variant<ServiceDir, StartProblem> ServiceDir::take(const Config& config) {
  if (auto problem = make_directory(config.dir)) return *std::move(problem);
  ServiceDir taken;
  auto lock = take_lock(config.dir + "/service.lock", config.dir);
  if (auto* problem = std::get_if<StartProblem>(&lock)) return std::move(*problem);
  taken.directory_lock_ = std::move(std::get<FileDescriptor>(lock));

  const std::string socket_path(ipc_path(config.endpoint));
  lock = take_lock(socket_path + ".lock", socket_path);
  if (auto* problem = std::get_if<StartProblem>(&lock)) return std::move(*problem);
  taken.endpoint_lock_ = std::move(std::get<FileDescriptor>(lock));

  if (auto problem = clear_socket(socket_path, SOCK_STREAM)) return *std::move(problem);
  if (auto problem = clear_socket(attach_path(config), SOCK_SEQPACKET)) return *std::move(problem);
  return taken;
}

}  // namespace kv::shell
