#include "tiering/stores/disk_directory.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "tiering/stores/file_error.h"
#include "tiering/stores/plain_file.h"
#include "tiering/stores/slab_name.h"

namespace kv {
namespace {

constexpr const char* kDamagedIndex = "/index.damaged";

// What write_disk_format leaves behind when it is killed.
bool is_temp_name(std::string_view name) {
  return name.starts_with("format.") && name.ends_with(".tmp");
}

// A slab file or an index with something in it.
bool is_of_blocks(const std::filesystem::path& path, std::error_code& error) {
  const std::string name = path.filename().string();
  if (parse_slab_name(name)) return true;
  return name == "index" && !std::filesystem::is_empty(path, error);
}

Result<void> make_folder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return file_error(error.value(), "disk store: cannot make the directory");
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return file_error(errno, "disk store: cannot make the directory");
  }
  return {};
}

}  // namespace

Result<DiskDirectory> DiskDirectory::open(const std::string& path) {
  KV_TRY_VOID(make_folder(path));
  DiskDirectory directory;
  directory.path_ = path;
  directory.lock_ = open_plain_file(path + "/lock", O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
  if (!directory.lock_.is_open()) return file_error(errno, "disk store: cannot open the lock file");
  if (::flock(directory.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return Error{ErrorCode::busy, "disk store: another service uses this directory", "directory"};
    }
    return file_error(errno, "disk store: cannot lock");
  }
  KV_TRY_VOID(make_folder(path + "/index"));
  KV_TRY_VOID(directory.look_through());
  return directory;
}

bool DiskDirectory::has_blocks(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator at(path, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    if (is_of_blocks(at->path(), error)) return !error;
  }
  return false;
}

bool DiskDirectory::is_gone() const {
  struct stat held{};
  struct stat named{};
  return ::fstat(lock_.get(), &held) == 0 &&
         (::stat((path_ + "/lock").c_str(), &named) != 0 || held.st_ino != named.st_ino ||
          held.st_dev != named.st_dev);
}

Result<void> DiskDirectory::set_index_aside() {
  const std::string index = path_ + "/index";
  std::error_code error;
  std::filesystem::remove_all(path_ + kDamagedIndex, error);
  if (!error) std::filesystem::rename(index, path_ + kDamagedIndex, error);
  if (error) return file_error(error.value(), "disk store: cannot set the damaged index aside");
  return make_folder(index);
}

Result<void> DiskDirectory::look_through() {
  std::error_code error;
  std::filesystem::directory_iterator at(path_, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_temp_name(name)) {
      if (std::filesystem::remove(at->path(), error)) ++temp_files_removed_;
    } else if (is_of_blocks(at->path(), error)) {
      holds_blocks_ = true;
    } else if (name != "index" && name != "format" && name != "lock" && name != "opening" &&
               "/" + name != kDamagedIndex) {
      ++foreign_files_;
    }
    if (error) break;
  }
  if (error) return file_error(error.value(), "disk store: cannot look through the directory");
  return {};
}

}  // namespace kv
