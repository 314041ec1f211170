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

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return open_for_writing(path, O_TRUNC);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return open_for_writing(path, O_APPEND);
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) fail_errno("open", path);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) fail_errno("stat", path);
    if (S_ISDIR(status.st_mode)) fail("cannot read '{}': it is a folder", path);
    const auto size = static_cast<size_t>(status.st_size);
    auto mapped = map_file(fd.get(), size, path);
    if (!mapped) fail_errno("map", path);
    return mapped;
  }
  std::string read(const std::string& path) override {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) fail_errno("open", path);
    std::string content;
    char block[1 << 16];
    for (;;) {
      const ssize_t n = ::read(fd.get(), block, sizeof block);
      if (n < 0) {
        if (errno == EINTR) continue;
        fail_errno("read", path);
      }
      if (n == 0) return content;
      content.append(block, static_cast<size_t>(n));
    }
  }
  bool exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }
  uint64_t size(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) fail_errno("stat", path);
    return static_cast<uint64_t>(status.st_size);
  }
  std::vector<std::string> list(const std::string& folder) override {
    std::error_code code;
    std::vector<std::string> names;
    for (auto it = std::filesystem::directory_iterator(folder, code); !code && it != std::filesystem::end(it);
         it.increment(code))
      names.push_back(it->path().filename().string());
    if (code) fail("cannot list '{}': {}", folder, code.message());
    std::sort(names.begin(), names.end());
    return names;
  }
  void create_folders(const std::string& path) override {
    std::error_code code;
    std::filesystem::create_directories(path, code);
    if (code) fail("cannot create folder '{}': {}", path, code.message());
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("rename", from);
  }
  void remove_all(const std::string& path) override {
    std::error_code code;
    std::filesystem::remove_all(path, code);
    if (code) fail("cannot remove '{}': {}", path, code.message());
  }
  void sync_folder(const std::string& path) override {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) fail_errno("open folder", path);
    if (::fsync(fd.get()) != 0) fail_errno("sync folder", path);
  }
  uint64_t free_bytes(const std::string& path) override {
    struct statvfs status {};
    if (::statvfs(path.c_str(), &status) != 0) fail_errno("ask for the free space of", path);
    return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
  }

 private:
  static std::unique_ptr<WritableFile> open_for_writing(const std::string& path, int mode) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0644);
    if (fd < 0) fail_errno("create", path);
    return std::make_unique<PosixWritableFile>(path, fd);
  }
};

}  // namespace

FileSystem& real_file_system() {
  static PosixFileSystem instance;
  return instance;
}

void write_file_atomically(FileSystem& fs, const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  const auto file = fs.create(temporary);
  file->append(content.data(), content.size());
  file->sync();
  file->close();
  fs.rename(temporary, path);
  const auto slash = path.rfind('/');
  fs.sync_folder(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace ingot
