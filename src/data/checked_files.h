// Remembers the hashes of files in a file beside them, `checked.json`, so that each is read once: as long as
// size, time of change and inode stay the same, the hash does too. Damage that leaves all three alone is
// found by reading everything again (`ingot run --verify-data`).
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "base/file_system.h"

namespace ingot::data {

class CheckedFiles {
 public:
  /// Of the files that belong to `folder`, which may not exist yet. A checked.json that is absent, damaged
  /// or of another version says nothing. `since`: only hashes that were computed then or later count, in
  /// seconds since 1970. So the ranks of a run that verifies its data, which begin at once, read each file
  /// of a node once.
  CheckedFiles(FileSystem& fs, std::string folder, double since = 0);

  /// Whether this file had this hash and is unchanged. `path`: any; those inside the folder may move with it.
  bool knows(const std::string& path, const std::string& hash) const;
  /// The file's XXH3-128, from memory or by reading it.
  std::string hash(const std::string& path);
  /// Remembers the hash of a file that was read after `before`, its stamp, was taken.
  void remember(const std::string& path, const std::string& hash, const std::optional<FileStamp>& before);
  std::optional<FileStamp> stamp(const std::string& path) const { return fs_.stamp(path); }
  /// Writes what is new. Where the folder cannot be written, the files are simply read again next time.
  void save();
  /// Bytes that hash() has read, for tests and messages.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct Known {
    FileStamp stamp;
    std::string hash;
    double time = 0;  ///< when the hash was computed
  };
  std::string name_of(const std::string& path) const;
  void load();
  FileSystem& fs_;
  std::string folder_;
  double since_;
  std::map<std::string, Known> known_;
  bool changed_ = false;
  int64_t bytes_read_ = 0;
};

}  // namespace ingot::data
