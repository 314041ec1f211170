// One program per run folder: an exclusive lock on `run.lock` in it, held while the object lives and released
// by the system when the process dies, however it dies.
#pragma once
#include <string>

namespace ingot {

class RunLock {
 public:
  /// Error where another process (named by its id) holds the lock, or the folder cannot be written.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace ingot
