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
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/host_name.h"
#include "base/log.h"

namespace ingot::guard {
namespace {

constexpr double kLongestTest = 3 * 3600;  ///< seconds: level 4 takes two hours

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

[[noreturn]] void become_job(const std::vector<std::string>& command, int64_t number, int log, int go) {
  char byte = 0;
  while (::read(go, &byte, 1) < 0 && errno == EINTR) {
  }
  if (byte != 'g') ::_exit(127);
  ::setenv("INGOT_GUARD_START", std::to_string(number).c_str(), 1);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  fmt::print(stderr, "error: cannot start '{}': {}\n", command[0], std::strerror(errno));
  ::_exit(127);
}

/// Closes what a forked process inherited beside 0, 1, 2 and `kept`: it would hold the guard's own lock too.
void close_others(int kept) {
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  const auto keep = static_cast<unsigned>(kept);
  if (keep > kFirst) ::close_range(kFirst, keep - 1, 0);
  ::close_range(keep + 1, ~0U, 0);
}

/// Starts the job, records it before it runs, waits for it and records its end. Holds `lock` meanwhile.
[[noreturn]] void watch_job(const std::string& folder, const std::vector<std::string>& command,
                            int64_t number, int lock) {
  ::setsid();
  close_others(lock);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(s, SIG_IGN);
  try {
    FileSystem& fs = real_file_system();
    const std::string log_path = fmt::format("{}/job-{}.log", folder, number);
    const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int go[2];
    if (log < 0 || ::pipe2(go, O_CLOEXEC) < 0) ::_exit(1);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(go[1]);
      for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(s, SIG_DFL);
      become_job(command, number, log, go[0]);
    }
    if (pid < 0) ::_exit(1);
    write_file_atomically(fs, folder + "/job.json",
                          fmt::format("{{\"number\": {}, \"pid\": {}}}\n", number, pid));
    if (::write(go[1], "g", 1) != 1) ::kill(pid, SIGKILL);
    ::close(STDOUT_FILENO);  // the guard's terminal is not the job's
    ::close(STDERR_FILENO);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    write_file_atomically(fs, fmt::format("{}/end-{}.json", folder, number),
                          fmt::format("{{\"code\": {}}}\n", code));
  } catch (const std::exception&) {  // a full disk: the guard then sees an end without a code
  }
  ::_exit(0);
}

}  // namespace

LocalAdaptor::LocalAdaptor(const std::string& run_folder, std::vector<std::string> command,
                           std::vector<std::string> burn_in, double begin_seconds)
    : FolderAdaptor(run_folder, begin_seconds), command_(std::move(command)), burn_in_(std::move(burn_in)) {
  host_ = host_name();
}

LocalAdaptor::Job LocalAdaptor::job() const {
  const std::string text = read_small(path("job.json"));
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) return {};
  return {whole(j, "number", 0), static_cast<int>(whole(j, "pid", 0))};
}

bool LocalAdaptor::lives() const {
  const Descriptor lock(::open(path("job.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.get() < 0) fail("cannot open '{}': {}", path("job.lock"), std::strerror(errno));
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) < 0;
}

const Observation& LocalAdaptor::observe() {
  const bool alive = lives();
  const Job now = job();
  look_at_clocks();
  const bool reads = now.number > 0;
  seen_.job = alive ? JobState::running : JobState::ended;
  if (reads) reader_.read(seen_, now.number, path(fmt::format("job-{}.log", now.number)));
  seen_.start = now.number;
  seen_.job = !reads                 ? JobState::absent
              : !alive               ? JobState::ended
              : seen_.start_step < 0 ? JobState::starting
                                     : JobState::running;
  if (reads) seen_.nodes.push_back({.name = host_});  // a machine whose guard looks is not lost
  if (seen_.job == JobState::ended) look_at_end(now.number);
  return seen_;
}

void LocalAdaptor::start(const StartRequest& request) {
  // Inherited by the job: no O_CLOEXEC.
  const Descriptor lock(::open(path("job.lock").c_str(), O_RDWR | O_CREAT, 0644));
  if (lock.get() < 0) fail("cannot open '{}': {}", path("job.lock"), std::strerror(errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) < 0) {
    // A guard that was killed may have begun it a moment ago.
    for (int tries = 0; tries < 600; ++tries) {
      if (job().number == request.number) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    fail("start {} of the job still runs in '{}'", job().number, run_);
  }
  if (request.fewer) fail("{}", kNoFewer);
  if (job().number >= request.number) return;  // begun by a guard that was killed, and ended since
  if (std::find(request.excluded.begin(), request.excluded.end(), host_) != request.excluded.end() &&
      std::exchange(refused_, request.number) != request.number)
    fail(
        "this machine, '{}', failed its test or was lost, and the job has no other; mend it, or run the job "
        "on "
        "another one, then answer restart",
        host_);
  const std::vector<std::string> command = job_command(command_, request);
  const pid_t pid = ::fork();
  if (pid < 0) fail("cannot start the job: {}", std::strerror(errno));
  if (pid == 0) {
    if (::fork() != 0) ::_exit(0);  // its parent is then the system, so no guard needs to wait for it
    watch_job(folder_, command, request.number, lock.get());
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

void LocalAdaptor::burn_in(const std::vector<std::string>& nodes) {
  suspects_ = nodes;
  if (!test_)
    test_ =
        std::make_unique<Command>(burn_in_, path(fmt::format("burn-in-{}.txt", job().number)), kLongestTest);
}

std::optional<std::vector<std::string>> LocalAdaptor::burned_in() {
  const auto result = test_ ? test_->poll() : std::nullopt;
  if (!result) return std::nullopt;
  test_.reset();
  if (result->code == 127) fail("the burn-in '{}' cannot be started: {}", burn_in_[0], result->output);
  if (result->worked()) return std::vector<std::string>();
  log::warn("the burn-in of this machine failed, {}; {} has all of it", result->text(),
            path(fmt::format("burn-in-{}.txt", job().number)));
  return suspects_;
}

void LocalAdaptor::stop(bool at_once) {
  const Job now = job();
  if (now.pid <= 1 || !lives()) return;
  ::kill(now.pid, at_once ? SIGKILL : SIGTERM);
  if (at_once) ::kill(now.pid, SIGCONT);
}

}  // namespace ingot::guard
