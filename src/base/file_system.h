// An interface to the operating system's files that a test can break (fail or cut the power at any call).
// All paths are UTF-8 without a zero byte. Every failure is an Error that names the path, the operation and
// the system's reason. Only regular files are read and written: a folder, FIFO, device or socket is refused
// by its kind, at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

/// A file being written from the start. Its bytes are on disk only once sync() has returned.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(const void* data, size_t size) = 0;
  virtual void sync() = 0;
  /// Closes and reports errors; the destructor closes without reporting.
  virtual void close() = 0;
};

/// A whole file mapped read-only; the bytes stay valid while the object lives. A file that becomes shorter in
/// this time ends the program with a message (mapped_file.h).
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  /// Says that the caller will not read these bytes again soon, so they need not stay in memory. Reading them
  /// still works.
  virtual void done_with(std::span<const std::byte>) const {}
};

/// What an unchanged file keeps: two equal stamps of a path mean the same bytes, unless someone set the clock
/// back to change them.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  ///< since 1970
  uint64_t inode = 0;
  bool operator==(const FileStamp&) const = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// A new file. A file or link of that name goes first, so that nothing it leads to is written.
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;
  virtual std::unique_ptr<WritableFile> open_append(const std::string& path) = 0;
  virtual std::unique_ptr<MappedFile> map(const std::string& path) = 0;
  virtual std::string read(const std::string& path) = 0;  ///< the whole file, of at most 4 GiB
  virtual bool exists(const std::string& path) = 0;
  virtual uint64_t size(const std::string& path) = 0;
  /// Nothing where there is no such file, or where the file system cannot tell.
  virtual std::optional<FileStamp> stamp(const std::string&) { return std::nullopt; }
  virtual std::vector<std::string> list(const std::string& folder) = 0;  ///< names, sorted; no "." and ".."
  virtual void create_folders(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  ///< atomic, replaces a file
  virtual void remove_all(const std::string& path) = 0;                     ///< absent is fine
  virtual void sync_folder(const std::string& path) = 0;                    ///< makes renames in it durable
  virtual uint64_t free_bytes(const std::string& path) = 0;
};

/// The real one (POSIX); a process-wide object.
FileSystem& real_file_system();

/// The whole file; Error where it has more than `most` bytes, before they are read.
std::string read_at_most(FileSystem& fs, const std::string& path, uint64_t most);

/// A file or folder that is being made: removed at the end of the scope unless kept, so that a job which
/// fails leaves nothing behind.
class Unfinished {
 public:
  Unfinished(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {}
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  void keep() { kept_ = true; }

 private:
  FileSystem& fs_;
  std::string path_;
  bool kept_ = false;
};

/// Writes `content` so that `path` is always either the old or the new file: it writes and syncs a file of a
/// temporary name, renames it, and syncs the folder. Processes that may write it at the same time each need a
/// `writer` of their own in that name: then the last one's stays, whole.
void write_file_atomically(FileSystem& fs, const std::string& path, std::string_view content,
                           std::string_view writer = "");

}  // namespace ingot
