// See memory_files.h. Each file is an anonymous one of the kernel (memfd_create), so growing it copies
// nothing and its pages may be swapped out.
#include "base/memory_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

[[noreturn]] void fail_in_memory(const char* operation, const std::string& path) {
  throw Error(fmt::format("cannot {} '{}' in memory: {}", operation, path, std::strerror(errno)));
}

struct AnonymousFile {
  explicit AnonymousFile(const std::string& path) : fd(::memfd_create("ingot", MFD_CLOEXEC)) {
    if (fd < 0) fail_in_memory("create", path);
  }
  ~AnonymousFile() { ::close(fd); }
  AnonymousFile(const AnonymousFile&) = delete;
  AnonymousFile& operator=(const AnonymousFile&) = delete;
  const int fd;
  uint64_t bytes = 0;
};
using AnonymousPtr = std::shared_ptr<AnonymousFile>;

class AnonymousWriter final : public WritableFile {
 public:
  AnonymousWriter(std::string path, AnonymousPtr file) : path_(std::move(path)), file_(std::move(file)) {}
  void append(const void* data, size_t size) override {
    const char* p = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n =
          ::pwrite(file_->fd, p, std::min<size_t>(size, size_t{1} << 30), static_cast<off_t>(file_->bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_in_memory("write", path_);
      p += n;
      size -= static_cast<size_t>(n);
      file_->bytes += static_cast<uint64_t>(n);
    }
  }
  void sync() override {}
  void close() override {}

 private:
  std::string path_;
  AnonymousPtr file_;
};

class AnonymousMap final : public MappedFile {
 public:
  AnonymousMap(const std::string& path, const AnonymousFile& file) : size_(file.bytes) {
    if (size_ == 0) return;
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
    if (data_ == MAP_FAILED) fail_in_memory("map", path);
  }
  ~AnonymousMap() override {
    if (size_ > 0) ::munmap(data_, size_);
  }
  std::span<const std::byte> bytes() const override { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_;
};

class MemoryFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    auto file = std::make_shared<AnonymousFile>(path);
    const std::scoped_lock lock(mutex_);
    files_[path] = file;
    return std::make_unique<AnonymousWriter>(path, std::move(file));
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    if (!exists(path)) return create(path);
    return std::make_unique<AnonymousWriter>(path, need(path));
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    return std::make_unique<AnonymousMap>(path, *need(path));
  }
  std::string read(const std::string& path) override {
    const auto mapped = map(path);
    return {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
  }
  bool exists(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    return path == "." || path == "/" || files_.contains(path) || folders_.contains(path);
  }
  uint64_t size(const std::string& path) override { return need(path)->bytes; }
  std::vector<std::string> list(const std::string& folder) override {
    const std::scoped_lock lock(mutex_);
    std::set<std::string> names;
    const auto note = [&](const std::string& path) {
      if (path.starts_with(folder + "/"))
        names.insert(path.substr(folder.size() + 1, path.find('/', folder.size() + 1) - folder.size() - 1));
    };
    for (const auto& [path, file] : files_) note(path);
    for (const std::string& path : folders_) note(path);
    return {names.begin(), names.end()};
  }
  void create_folders(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    for (size_t end = path.find('/'); end != path.npos; end = path.find('/', end + 1))
      folders_.insert(path.substr(0, end));
    folders_.insert(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    const std::scoped_lock lock(mutex_);
    std::map<std::string, AnonymousPtr> files;
    for (auto& [path, file] : files_) files[moved(path, from, to)] = std::move(file);
    std::set<std::string> folders;
    for (const std::string& path : folders_) folders.insert(moved(path, from, to));
    files_ = std::move(files);
    folders_ = std::move(folders);
  }
  void remove_all(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    const auto inside = [&](const std::string& p) { return p == path || p.starts_with(path + "/"); };
    std::erase_if(files_, [&](const auto& entry) { return inside(entry.first); });
    std::erase_if(folders_, inside);
  }
  void sync_folder(const std::string&) override {}
  uint64_t free_bytes(const std::string&) override { return UINT64_MAX; }

 private:
  static std::string moved(const std::string& path, const std::string& from, const std::string& to) {
    return path == from || path.starts_with(from + "/") ? to + path.substr(from.size()) : path;
  }
  AnonymousPtr need(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    const auto it = files_.find(path);
    if (it == files_.end()) fail("there is no file '{}' in memory", path);
    return it->second;
  }
  std::mutex mutex_;
  std::map<std::string, AnonymousPtr> files_;  // guarded by mutex_, as are folders_
  std::set<std::string> folders_;
};

}  // namespace

std::unique_ptr<FileSystem> memory_file_system() {
  return std::make_unique<MemoryFileSystem>();
}

}  // namespace ingot
