// One program at a time in a folder: an exclusive lock on `<use>.lock` in it, held while the object lives and released
// by the system when the process dies, however it dies. The file stays: removing it would be a race.
#pragma once
#include <string>

namespace ingot {

class FolderLock {
 public:
  enum class Busy {
    refuse,  ///< Error that names the process which holds the lock
    wait     ///< says so in the log, and waits until it is free
  };
  /// `use` is what the folder is for ("run", "data"): part of messages and of the file's name. Error where the folder
  /// does not exist or cannot be written.
  FolderLock(const std::string& folder, const std::string& use, Busy busy = Busy::refuse);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  void acquire(const std::string& folder, const std::string& use, Busy busy);
  int fd_ = -1;
};

}  // namespace ingot
