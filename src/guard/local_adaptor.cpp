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

#include "base/clock.h"
#include "base/error.h"

namespace ingot::guard {
namespace {

constexpr uint64_t kLargest = 64 << 20;  ///< bytes of a file that is evidence

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

void append_line(const std::string& path, const nlohmann::ordered_json& j) {
  const std::string line = j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const auto file = real_file_system().open_append(path);
  file->append(line.data(), line.size());
  file->close();
}

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

std::string guard_folder(const std::string& run_folder) {
  const std::string folder = run_folder + "/guard";
  real_file_system().create_folders(folder);
  return folder;
}

LocalAdaptor::LocalAdaptor(std::string run_folder, std::vector<std::string> command, double begin_seconds)
    : run_(std::move(run_folder)),
      folder_(guard_folder(run_)),
      command_(std::move(command)),
      offset_(begin_seconds - monotonic_seconds()),
      reader_(run_) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  host_ = name;
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
  seen_.now = monotonic_seconds() + offset_;
  seen_.wall = wall_seconds();
  const bool reads = now.number > 0;
  seen_.job = alive ? JobState::running : JobState::ended;
  if (reads) reader_.read(seen_, now.number, path(fmt::format("job-{}.log", now.number)));
  seen_.start = now.number;
  seen_.job = !reads                 ? JobState::absent
              : !alive               ? JobState::ended
              : seen_.start_step < 0 ? JobState::starting
                                     : JobState::running;
  seen_.exit_code = -1;
  if (reads) seen_.nodes.push_back({.name = host_});  // a machine whose guard looks is not lost
  if (seen_.job != JobState::ended) return seen_;
  const auto end =
      nlohmann::json::parse(read_small(path(fmt::format("end-{}.json", now.number))), nullptr, false);
  if (end.is_object()) seen_.exit_code = static_cast<int>(whole(end, "code", -1));
  const bool killed = seen_.exit_code < 0 || seen_.exit_code > 130;
  if (killed && !seen_.failure)
    seen_.failure = FailureReport{.kind = FailureKind::lost, .message = "the job was killed"};
  if (seen_.exit_code == 130) seen_.failure = FailureReport{.kind = FailureKind::signal};
  if (seen_.exit_code == 2) seen_.failure = FailureReport{.kind = FailureKind::config};
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
  if (job().number >= request.number) return;  // begun by a guard that was killed, and ended since
  std::vector<std::string> command = command_;
  if (request.from_step >= 0)
    for (const std::string& word : {std::string("--from"), std::to_string(request.from_step)})
      command.push_back(word);
  if (request.skip_batches > 0)
    for (const std::string& word : {std::string("--skip-batches"), std::to_string(request.skip_batches)})
      command.push_back(word);
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

void LocalAdaptor::stop(bool at_once) {
  const Job now = job();
  if (now.pid <= 1 || !lives()) return;
  ::kill(now.pid, at_once ? SIGKILL : SIGTERM);
  if (at_once) ::kill(now.pid, SIGCONT);
}

void LocalAdaptor::save_evidence(int64_t entry) {
  FileSystem& fs = real_file_system();
  const std::string to = fmt::format("{}/evidence/{}", folder_, entry);
  fs.create_folders(to);
  std::vector<std::string> names{"failure.json", "run.json"};
  for (const std::string& name : fs.list(run_))
    if (name.starts_with("flight-")) names.push_back(name);
  for (const std::string& name : names)
    if (fs.exists(run_ + "/" + name) && fs.size(run_ + "/" + name) <= kLargest)
      write_file_atomically(fs, to + "/" + name, fs.read(run_ + "/" + name));
}

void LocalAdaptor::alert(const std::string& text) {
  append_line(path("alerts.jsonl"), {{"time", wall_seconds()}, {"text", text}});
}

void LocalAdaptor::ask(int64_t entry, const std::string& text) {
  const std::string question = path(fmt::format("question-{}.json", entry));
  if (real_file_system().exists(question)) return;
  const nlohmann::ordered_json j{{"entry", entry}, {"time", wall_seconds()}, {"text", text}};
  write_file_atomically(real_file_system(), question, j.dump() + "\n");
  alert("a person is asked: " + text);
}

std::optional<std::vector<Action>> LocalAdaptor::answer(int64_t entry) {
  const std::string text = read_small(path(fmt::format("answer-{}.json", entry)));
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("actions") || !j["actions"].is_array()) return std::nullopt;
  std::vector<Action> actions;
  for (const auto& a : j["actions"]) {
    if (!a.is_string()) return std::nullopt;
    actions.push_back(enum_from<Action>(a.get<std::string>(), "action"));
  }
  return actions;
}

void answer_question(const std::string& run_folder, const std::vector<Action>& actions) {
  FileSystem& fs = real_file_system();
  const std::string folder = run_folder + "/guard";
  int64_t open = -1;
  if (fs.exists(folder))
    for (const std::string& name : fs.list(folder)) {
      const auto j = nlohmann::json::parse(
          name.starts_with("question-") ? read_small(folder + "/" + name) : "", nullptr, false);
      if (j.is_object()) open = std::max(open, whole(j, "entry", -1));
    }
  if (open < 0 || fs.exists(fmt::format("{}/answer-{}.json", folder, open)))
    throw Error(fmt::format("the guard of '{}' asks nothing", run_folder),
                "ingot guard status shows what it does");
  nlohmann::ordered_json j{{"actions", nlohmann::ordered_json::array()}};
  for (const Action a : actions) j["actions"].push_back(name_of(a));
  write_file_atomically(fs, fmt::format("{}/answer-{}.json", folder, open), j.dump() + "\n");
}

}  // namespace ingot::guard
