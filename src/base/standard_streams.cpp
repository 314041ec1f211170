// See standard_streams.h.
#include "base/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace ingot {
namespace {

std::atomic<bool> drops_stalled{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in signal handlers");

/// Waits until a write of PIPE_BUF bytes would not block. False where it would, and is to be dropped.
bool waits_for_reader(int file) {
  constexpr int kMilliseconds = 100;
  pollfd request{file, POLLOUT, 0};
  for (;;) {
    const bool last_try = drops_stalled;
    const int ready = ::poll(&request, 1, kMilliseconds);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (last_try) return false;
  }
}

}  // namespace

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free number is the stream's: those below are open.
    const int opened = ::open("/dev/null", O_RDWR);
    if (opened >= 0 && opened != stream) ::close(opened);
  }
}

void write_to_reader(int file, std::string_view text) noexcept {
  while (!text.empty() && waits_for_reader(file)) {
    const ssize_t written = ::write(file, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written > 0)
      text.remove_prefix(static_cast<size_t>(written));
    else if (errno != EINTR && errno != EAGAIN)
      return;
  }
}

void drop_stalled(bool drop) {
  drops_stalled = drop;
}

bool flush_standard_output(std::string& reason) {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return true;
  if (errno == 0) {  // an earlier write failed; one more asks for the reason
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }
  reason = errno != 0 ? std::strerror(errno) : "an earlier part could not be written";
  return false;
}

}  // namespace ingot
