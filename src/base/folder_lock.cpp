// See folder_lock.h.
#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/host_name.h"
#include "base/log.h"

namespace ingot {
namespace {

/// Who wrote the lock file: "process 1234 on host".
std::string holder(int fd) {
  char text[512];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  std::string name(text, n > 0 ? static_cast<size_t>(n) : 0);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name.empty() ? "another process" : name;
}

/// 0, or the reason of the failure. A signal that does not end the program does not end the wait.
int lock(int fd, int how) {
  while (::flock(fd, how) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& use, Busy busy)
    : path_(fmt::format("{}/{}.lock", folder, use)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  struct stat status {};
  const int code = errno;
  if ((fd_ < 0 && code == ELOOP) || (fd_ >= 0 && (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)))) {
    if (fd_ >= 0) ::close(fd_);
    throw Error(fmt::format("'{}' leads to another file, or is none: a lock is written there", path_),
                "remove it, and start again");
  }
  errno = code;
  if (fd_ < 0)
    throw Error(fmt::format("cannot create '{}': {}", path_, std::strerror(errno)),
                "check that the folder exists and may be written");
  try {
    acquire(folder, use, busy);
    const std::string text = fmt::format("process {} on {}\n", ::getpid(), host_name());
    if (::ftruncate(fd_, 0) != 0 ||
        ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      fail("cannot write '{}': {}", path_, std::strerror(errno));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

void FolderLock::acquire(const std::string& folder, const std::string& use, Busy busy) {
  int code = lock(fd_, LOCK_EX | LOCK_NB);
  if (code == EWOULDBLOCK) {
    const std::string what = fmt::format("the {} folder '{}' is in use by {}", use, folder, holder(fd_));
    if (busy == Busy::refuse)
      throw Error(what, fmt::format("stop that process, or choose another {} folder", use));
    log::info("{}; waiting until it is done", what);
    code = lock(fd_, LOCK_EX);
  }
  if (code != 0) fail("cannot lock the {} folder '{}': {}", use, folder, std::strerror(code));
}

bool FolderLock::held(const std::string& folder, const std::string& use) {
  const int fd = ::open(fmt::format("{}/{}.lock", folder, use).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool busy = lock(fd, LOCK_SH | LOCK_NB) == EWOULDBLOCK;
  ::close(fd);
  return busy;
}

bool FolderLock::in_place() const {
  struct stat held {
  }, found{};
  return ::fstat(fd_, &held) == 0 && ::stat(path_.c_str(), &found) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

}  // namespace ingot
