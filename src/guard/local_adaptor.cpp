// See local_adaptor.h.
#include "guard/local_adaptor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/folder_lock.h"
#include "base/host_name.h"
#include "base/log.h"

namespace ingot::guard {
namespace {

constexpr double kLongestTest = 3 * 3600;  ///< seconds: level 4 takes two hours

/// Closes what a forked process inherited beside 0, 1, 2 and `kept`: it would hold the guard's own lock too.
void close_others(int kept) {
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  const auto keep = static_cast<unsigned>(kept);
  if (keep > kFirst) ::close_range(kFirst, keep - 1, 0);
  ::close_range(keep + 1, ~0U, 0);
}

}  // namespace

LocalAdaptor::LocalAdaptor(const std::string& run_folder, Words command, Words burn_in, double begin_seconds)
    : FolderAdaptor(run_folder, std::move(command), "TERM", begin_seconds),
      burn_in_(std::move(burn_in)),
      host_(host_name()) {}

bool LocalAdaptor::lives() const {
  return FolderLock::held(folder_, "job");
}

void LocalAdaptor::look_at(const Job&) {
  seen_.job = lives() ? JobState::running : JobState::ended;
}

JobState LocalAdaptor::judge(const Job&) {
  seen_.nodes.push_back({.name = host_});  // a machine whose guard looks is not lost
  return seen_.job == JobState::running && seen_.start_step < 0 ? JobState::starting : seen_.job;
}

void LocalAdaptor::begin(const StartRequest& request) {
  if (lives()) {  // a guard that was killed may have begun it a moment ago
    for (int tries = 0; tries < 600; ++tries) {
      if (job().number == request.number) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    fail("start {} of the job still runs in '{}'", job().number, run_);
  }
  if (std::find(request.excluded.begin(), request.excluded.end(), host_) != request.excluded.end() &&
      std::exchange(refused_, request.number) != request.number)
    fail(
        "this machine, '{}', failed its test or was lost, and the job has no other; mend it, or run the job "
        "on another one, then answer restart",
        host_);
  const std::string script = write_script(request);
  // Inherited by the job: no O_CLOEXEC.
  const int lock = ::open(path("job.lock").c_str(), O_RDWR | O_CREAT, 0644);
  const bool locked = lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) == 0;
  const pid_t pid = locked ? ::fork() : -1;
  if (pid == 0) {
    close_others(lock);             // at once: the next guard needs its lock
    if (::fork() != 0) ::_exit(0);  // its parent is then the system, so no guard needs to wait for it
    become_job(script, request.number);
  }
  const int code = errno;
  ::close(lock);
  if (pid < 0) fail("cannot {}: {}", locked ? "start the job" : "lock job.lock", std::strerror(code));
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void LocalAdaptor::become_job(const std::string& script, int64_t number) const {
  ::setsid();
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(s, SIG_DFL);
  try {
    record({.number = number, .pid = ::getpid()});
    ::execl("/bin/sh", "sh", script.c_str(), nullptr);
  } catch (const std::exception&) {  // a full disk: the guard then sees that nothing was begun
  }
  ::_exit(127);
}

std::optional<std::vector<std::string>> LocalAdaptor::burn_in(const std::vector<std::string>& nodes) {
  const std::string output = path(fmt::format("burn-in-{}.txt", job().number));
  if (!test_) test_ = std::make_unique<Command>(burn_in_, output, kLongestTest);
  const auto result = test_->poll();
  if (!result) return std::nullopt;
  test_.reset();
  if (result->code == 127) fail("the burn-in '{}' cannot be started: {}", burn_in_[0], result->errors);
  if (result->worked()) return std::vector<std::string>();
  log::warn("the burn-in of this machine failed, {}; {} has all of it", result->text(), output);
  return nodes;
}

void LocalAdaptor::stop(bool at_once) {
  const Job now = job();
  if (now.pid <= 1 || !lives()) return;
  ::kill(at_once ? -now.pid : now.pid, at_once ? SIGKILL : SIGTERM);  // at once: its script and its ranks too
}

}  // namespace ingot::guard
