// See run_lock.h.
#include "checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

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

}  // namespace

RunLock::RunLock(const std::string& folder) {
  const std::string path = folder + "/run.lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0)
    throw Error(fmt::format("cannot create '{}': {}", path, std::strerror(errno)),
                "check that the folder exists and may be written");
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    const std::string who = holder(fd_);
    ::close(fd_);
    if (code != EWOULDBLOCK) fail("cannot lock '{}': {}", path, std::strerror(code));
    throw Error(fmt::format("the run folder '{}' is in use by {}", folder, who),
                "stop that process, or give this run another folder");
  }
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string text = fmt::format("process {} on {}\n", ::getpid(), host);
  if (::ftruncate(fd_, 0) != 0 ||
      ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int code = errno;
    ::close(fd_);
    fail("cannot write '{}': {}", path, std::strerror(code));
  }
}

RunLock::~RunLock() {
  ::close(fd_);
}

}  // namespace ingot
