// Allows one program at a time in a folder, by an exclusive lock on the file `<use>.lock` in it. The lock is
// held while the object lives; the system releases it when the process dies, however it dies. The file stays,
// because removing it would be a race.
#pragma once
#include <string>

namespace ingot {

class FolderLock {
 public:
  enum class Busy {
    refuse,  ///< Error that names the process which holds the lock
    wait     ///< says so in the log, and waits until it is free
  };
  /// `use` says what the folder is for ("run", "data"); it is part of messages and of the file's name. Error
  /// where the folder does not exist or cannot be written.
  FolderLock(const std::string& folder, const std::string& use, Busy busy = Busy::refuse);
  ~FolderLock();
  /// Whether a process holds it now. False where there is no such folder or lock.
  static bool held(const std::string& folder, const std::string& use);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Whether the file is still in the folder. Where it is not, another program may take the folder.
  bool in_place() const;

 private:
  void acquire(const std::string& folder, const std::string& use, Busy busy);
  std::string path_;
  int fd_ = -1;
};

}  // namespace ingot
