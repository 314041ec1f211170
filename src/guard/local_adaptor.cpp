// See local_adaptor.h.
#include "guard/local_adaptor.h"

#include <signal.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/folder_lock.h"
#include "base/host_name.h"
#include "base/log.h"

namespace ingot::guard {
namespace {

constexpr double kLongestTest = 3 * 3600;  ///< seconds: level 4 takes two hours

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
  return seen_.job == JobState::running && seen_.first.start_step < 0 ? JobState::starting : seen_.job;
}

void LocalAdaptor::begin(const StartRequest& request) {
  if (!lives()) {
    if (contains(request.excluded, host_) && std::exchange(refused_, request.number) != request.number)
      fail(
          "this machine, '{}', failed its test or was lost, and the job has no other; mend it, or run the "
          "job on another one, then answer restart",
          host_);
    // The lock is the job's as long as any process of it lives, and job.json has the leader of its session.
    const std::string named =
        fmt::format(R"(echo '{{"number": {}, "pid": '$$'}}' >"$1.tmp" && mv "$1.tmp" "$1" && exec sh "$0")",
                    request.number);
    Command command({"setsid", "--fork", "flock", "--no-fork", "--nonblock", path("job.lock"), "sh", "-c",
                     named, write_script(request), path("job.json")},
                    path("start.txt"), 60);
    if (const CommandResult r = command.wait(); !r.worked()) fail("cannot start the job: {}", r.text());
  }
  for (int tries = 0; tries < 6000; ++tries) {  // what lives may be of a guard that was killed a moment ago
    if (job().number == request.number) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fail("start {} of the job does not begin: start {} {}", request.number, job().number,
       lives() ? "still runs" : fmt::format("was the last one; {}.err says why", path("start.txt")));
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
