// See killer.h.
#include "support/killer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace ingot::test {
namespace {

bool contains(const std::string& path, const char* part) {
  return path.find(part) != std::string::npos;
}

/// The phase of a change to this file; `in_checkpoint` is the phase below "checkpoints". Empty: none.
std::string phase_of(const std::string& path, const char* in_checkpoint) {
  if (contains(path, "/checkpoints")) return in_checkpoint;
  return contains(path, "/data") ? "prepare" : "";
}

}  // namespace

KillPlan KillPlan::parse(const std::string& text) {
  KillPlan plan;
  std::istringstream(text) >> plan.phase >> plan.number >> plan.microseconds >> plan.fault;
  if (plan.fault.empty()) plan.fault = "kill";
  return plan;
}

bool Killer::happens(const std::string& phase) {
  if (phase.empty() || !armed_) return false;
  while (pending_) std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::lock_guard lock(mutex_);
  if (counts_[phase]++ != plan_.number || phase != plan_.phase) return false;
  if (plan_.microseconds == 0) return true;
  pending_ = true;
  std::thread([this] {
    std::this_thread::sleep_for(std::chrono::microseconds(plan_.microseconds));
    die();
  }).detach();
  return false;
}

void Killer::die() const {
  const std::string text = "killed in " + plan_.phase + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
  if (!plan_.note.empty()) std::ofstream(plan_.note) << fmt::format("{}", monotonic_seconds());
  if (plan_.fault == "stop")
    ::kill(::getpid(), SIGSTOP);
  else if (plan_.fault == "delay")
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  else
    for (;;) ::kill(::getpid(), SIGKILL);
}

std::string Killer::counts() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [phase, n] : counts_) text += fmt::format("{} {}\n", phase, n);
  return text;
}

class KillFs::File final : public WritableFile {
 public:
  File(Killer& killer, const std::string& path, std::unique_ptr<WritableFile> file)
      : killer_(killer), phase_(phase_of(path, "write")), file_(std::move(file)) {}
  void append(const void* data, size_t size) override {
    size_t written = 0;
    if (killer_.happens(phase_)) {
      written = size / 2;
      file_->append(data, written);
      killer_.die();
    }
    file_->append(static_cast<const std::byte*>(data) + written, size - written);
  }
  void sync() override {
    killer_.happens_or_die(phase_);
    file_->sync();
  }
  void close() override { file_->close(); }

 private:
  Killer& killer_;
  std::string phase_;
  std::unique_ptr<WritableFile> file_;
};

std::unique_ptr<WritableFile> KillFs::create(const std::string& path) {
  killer_.happens_or_die(phase_of(path, "write"));
  return std::make_unique<File>(killer_, path, real_file_system().create(path));
}
std::unique_ptr<WritableFile> KillFs::open_append(const std::string& path) {
  killer_.happens_or_die(phase_of(path, "write"));
  return std::make_unique<File>(killer_, path, real_file_system().open_append(path));
}
void KillFs::create_folders(const std::string& path) {
  killer_.happens_or_die(phase_of(path, "write"));
  real_file_system().create_folders(path);
}
void KillFs::rename(const std::string& from, const std::string& to) {
  killer_.happens_or_die(phase_of(from, "rename"));
  real_file_system().rename(from, to);
  killer_.happens_or_die(phase_of(from, "rename"));
}
void KillFs::remove_all(const std::string& path) {
  killer_.happens_or_die(phase_of(path, "delete"));
  real_file_system().remove_all(path);
}
void KillFs::sync_folder(const std::string& path) {
  killer_.happens_or_die(phase_of(path, "write"));
  real_file_system().sync_folder(path);
}

void KillObserver::enters(StepPart phase) {
  switch (phase) {
    case StepPart::data:
      return killer_.happens_or_die("data");
    case StepPart::passes:
      return;  // its tensors are the events
    case StepPart::replay:
      return killer_.happens_or_die("replay");
    case StepPart::optimizer:
      return killer_.happens_or_die("optimizer");
    case StepPart::update:
      return killer_.happens_or_die("update");
    case StepPart::records:
      return killer_.happens_or_die("records");
    case StepPart::save:
      return killer_.happens_or_die("copy");
  }
}

const char* KillObserver::phase_of(const std::string& tensor) {
  return contains(tensor, ".d_") ? "backward" : "forward";
}

void KillObserver::tensor(const std::string& name, const Tensor&) {
  killer_.happens_or_die(phase_of(name));
}

bool run_until_killed() {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  if (recipe == nullptr) return false;
  set_kernel_policy(KernelPolicy::any);
  Killer killer(KillPlan::parse(std::getenv("INGOT_TEST_KILL")));
  KillFs files(killer);
  KillObserver observer(killer);
  Trainer trainer(files, load_recipe(recipe, {}), StartMode::resume_or_start);
  std::printf("%s\n", trainer.plan().text.c_str());
  trainer.observe(&observer);
  EXPECT_TRUE(trainer.run().finished);
  std::printf("COUNTS\n%s", killer.counts().c_str());
  return true;
}

ProcessResult kill_in_child(const std::string& child, const std::string& recipe, const std::string& kill) {
  return run_process({"/proc/self/exe", "--gtest_filter=" + child, "--gtest_also_run_disabled_tests"},
                     {"INGOT_TEST_RECIPE=" + recipe, "INGOT_TEST_KILL=" + kill});
}

std::map<std::string, int64_t> counted_events(const ProcessResult& child) {
  std::map<std::string, int64_t> counts;
  const size_t at = child.output.find("COUNTS\n");
  if (at == std::string::npos) return counts;
  std::istringstream lines(child.output.substr(at + 7));
  std::string name;
  for (int64_t n = 0; lines >> name >> n;) counts[name] = n;
  return counts;
}

}  // namespace ingot::test
