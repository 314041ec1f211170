// See file_system.h: the POSIX implementation.
#include "base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"

namespace ingot {
namespace {

[[noreturn]] void fail_errno(const char* operation, const std::string& path) {
  const int code = errno;
  std::string hint;
  if (code == ENOSPC || code == EDQUOT) hint = "free some space on that disk, or choose another folder";
  if (code == EACCES || code == EPERM || code == EROFS) hint = "check the permissions of the folder";
  throw Error(fmt::format("cannot {} '{}': {}", operation, path, std::strerror(code)), hint);
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void append(const void* data, size_t size) override {
    const char* p = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::write(fd_.get(), p, std::min<size_t>(size, size_t{1} << 30));
      if (n < 0) {
        if (errno == EINTR) continue;
        fail_errno("write", path_);
      }
      p += n;
      size -= static_cast<size_t>(n);
    }
  }
  void sync() override {
    if (::fdatasync(fd_.get()) != 0) fail_errno("sync", path_);
  }
  void close() override {
    if (::close(fd_.release()) != 0) fail_errno("close", path_);
  }

 private:
  std::string path_;
  Fd fd_;
};

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a FIFO (named pipe)"
         : S_ISSOCK(mode) ? "a socket"
         : S_ISLNK(mode)  ? "a link"
                          : "a device";
}

/// The path for the system, which would stop at a zero byte.
const char* system_path(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    fail("'{}...' is no path: it has a zero byte", path.substr(0, path.find('\0')));
  return path.c_str();
}

/// Opens a regular file for reading and gives its size. Does not wait for the other end of a FIFO.
int open_regular(const std::string& path, size_t& size) {
  Fd fd(::open(system_path(path), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (fd.get() < 0 && errno == ENXIO && ::stat(path.c_str(), &status) == 0)
    fail("cannot read '{}': it is {}, expected a file", path, kind_of(status.st_mode));
  if (fd.get() < 0) fail_errno("open", path);
  if (::fstat(fd.get(), &status) != 0) fail_errno("stat", path);
  if (!S_ISREG(status.st_mode))
    fail("cannot read '{}': it is {}, expected a file", path, kind_of(status.st_mode));
  size = static_cast<size_t>(status.st_size);
  return fd.release();
}

/// Whether something stands there; an error where it is no file. `follow`: a link counts as what it leads to.
bool check_target(const std::string& path, bool follow) {
  struct stat status {};
  if ((follow ? ::stat : ::lstat)(system_path(path), &status) != 0) return false;
  if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
    fail("cannot write '{}': {} stands there, expected a file or nothing", path, kind_of(status.st_mode));
  return true;
}

void refuse_longer(const std::string& path, uint64_t bytes, uint64_t most) {
  if (bytes > most)
    throw Error(fmt::format("'{}' has {} bytes, at most {} are read", path, bytes, most),
                "check that it is the file that is meant");
}

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    int fd = -1;
    for (int attempt = 0; attempt < 3 && fd < 0; ++attempt) {  // another process may create it in between
      if (check_target(path, false) && ::unlink(path.c_str()) != 0 && errno != ENOENT)
        fail_errno("replace", path);
      fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
      if (fd < 0 && errno != EEXIST) break;
    }
    if (fd < 0) fail_errno("create", path);
    return std::make_unique<PosixWritableFile>(path, fd);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    check_target(path, true);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd < 0) fail_errno("create", path);
    return std::make_unique<PosixWritableFile>(path, fd);
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    size_t size = 0;
    const Fd fd(open_regular(path, size));
    auto mapped = map_file(fd.get(), size, path);
    if (!mapped) fail_errno("map", path);
    return mapped;
  }
  std::string read(const std::string& path) override {
    constexpr uint64_t kMost = uint64_t{4} << 30;
    size_t size = 0;
    const Fd fd(open_regular(path, size));
    std::string content;
    char block[1 << 16];
    for (;;) {
      refuse_longer(path, std::max(size, content.size()), kMost);  // a file of /proc says 0
      const ssize_t n = ::read(fd.get(), block, sizeof block);
      if (n < 0) {
        if (errno == EINTR) continue;
        fail_errno("read", path);
      }
      if (n == 0) return content;
      content.append(block, static_cast<size_t>(n));
    }
  }
  bool exists(const std::string& path) override {
    struct stat status {};
    return ::access(system_path(path), F_OK) == 0 ||
           (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode));
  }
  uint64_t size(const std::string& path) override {
    struct stat status {};
    if (::stat(system_path(path), &status) != 0) fail_errno("stat", path);
    return static_cast<uint64_t>(status.st_size);
  }
  std::optional<FileStamp> stamp(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return FileStamp{static_cast<uint64_t>(status.st_size),
                     int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec, status.st_ino};
  }
  std::vector<std::string> list(const std::string& folder) override {
    std::error_code code;
    std::vector<std::string> names;
    for (auto it = std::filesystem::directory_iterator(system_path(folder), code);
         !code && it != std::filesystem::end(it); it.increment(code))
      names.push_back(it->path().filename().string());
    if (code) fail("cannot list '{}': {}", folder, code.message());
    std::sort(names.begin(), names.end());
    return names;
  }
  void create_folders(const std::string& path) override {
    std::error_code code;
    std::filesystem::create_directories(system_path(path), code);
    if (code) fail("cannot create folder '{}': {}", path, code.message());
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(system_path(from), system_path(to)) != 0) fail_errno("rename", from);
  }
  void remove_all(const std::string& path) override {
    std::error_code code;
    std::filesystem::remove_all(system_path(path), code);
    if (code) fail("cannot remove '{}': {}", path, code.message());
  }
  void sync_folder(const std::string& path) override {
    const Fd fd(::open(system_path(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) fail_errno("open folder", path);
    if (::fsync(fd.get()) != 0) fail_errno("sync folder", path);
  }
  uint64_t free_bytes(const std::string& path) override {
    struct statvfs status {};
    if (::statvfs(system_path(path), &status) != 0) fail_errno("ask for the free space of", path);
    return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
  }
};

}  // namespace

FileSystem& real_file_system() {
  static PosixFileSystem instance;
  return instance;
}

std::string read_at_most(FileSystem& fs, const std::string& path, uint64_t most) {
  if (fs.exists(path)) refuse_longer(path, fs.size(path), most);
  return fs.read(path);
}

Unfinished::~Unfinished() {
  if (kept_) return;
  try {
    fs_.remove_all(path_);
  } catch (...) {  // the failure that led here is the one to tell
  }
}

void write_file_atomically(FileSystem& fs, const std::string& path, std::string_view content,
                           std::string_view writer) {
  check_target(path, true);
  const std::string temporary = fmt::format("{}{}.tmp", path, writer);
  Unfinished unfinished(fs, temporary);
  const auto file = fs.create(temporary);
  file->append(content.data(), content.size());
  file->sync();
  file->close();
  fs.rename(temporary, path);
  unfinished.keep();
  const auto slash = path.rfind('/');
  fs.sync_folder(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace ingot
