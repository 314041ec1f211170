// Runs whose weights, disk, folder or files fail: what is said, what is kept, and that they resume.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "checkpoint/reader.h"
#include "report/run_record.h"
#include "support/expect_parts.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::failing_faults_test {

namespace fs = std::filesystem;

using Arguments = std::vector<std::string>;

class Failing : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    set_kernel_policy(KernelPolicy::any);
    folder_ = std::make_unique<TempDir>();
    write_text(at("text.txt"), tiny_text(3000));
    const ProcessResult r = ingot("whole");
    ASSERT_EQ(r.exit_code, 0) << r.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string at(const std::string& name) { return *folder_ / name; }
  static std::string recipe(const std::string& name) {
    write_text(at(name) + ".toml", tiny_recipe(at(name), at("data"), at("text.txt")));
    return at(name) + ".toml";
  }
  static Arguments command(const std::string& name, const Arguments& more) {
    Arguments all{INGOT_BINARY, "run", recipe(name), "--kernels=any"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static ProcessResult ingot(const std::string& name, const Arguments& more = {}) {
    return run_process(command(name, more));
  }
  static void wait_for_rows(Process& p, const std::string& name, int64_t rows) {
    for (std::string text; p.running(); text = read_text(at(name) + "/" + run_files::kMetrics)) {
      if (std::count(text.begin(), text.end(), '\n') >= rows) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  static inline std::unique_ptr<TempDir> folder_;
};

int64_t count_of(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// The update of step 15 overflows: it is named there, never saved, and the older checkpoint stays.
TEST_F(Failing, AnUpdateThatOverflowsIsNamedAtItsStepAndNeverSaved) {
  const Arguments every{"--checkpoint.every=1", "--checkpoint.keep_last=1"};
  Arguments bad = every;
  for (const char* change : {"--phases.1.lr=1e38", "--optimizer.weight_decay=100", "--phases.0.lr=1e-9"})
    bad.push_back(change);
  const ProcessResult r = ingot("overflow", bad);
  EXPECT_EQ(r.exit_code, 1) << r.output;
  expect_parts(r.output,
               {"the update of step 15", "not finite: '",
                "step-00000014': lower the learning rate and resume", "--from 14 --skip-batches 1"});
  const CheckpointReader newest =
      CheckpointReader::open(real_file_system(), at("overflow") + "/" + run_files::kCheckpoints);
  EXPECT_EQ(newest.step(), 14);
  const ProcessResult again = ingot("overflow", every);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  // Before the first checkpoint the message does not speak of one.
  const ProcessResult none =
      ingot("none", {"--phases.0.lr=1e38", "--optimizer.weight_decay=100", "--phases.0.warmup=0"});
  EXPECT_EQ(none.exit_code, 1) << none.output;
  expect_parts(none.output, {"the update of step 1", "there is no checkpoint yet"});
}

// Adapters start as A x 0, and only A may change: its gradient is 0 for ever.
TEST_F(Failing, AModelThatLearnsNothingIsNoticed) {
  const ProcessResult r = ingot("dead", {"--model.lora.rank=2", "--optimizer.freeze=[\"*.lora_b\"]"});
  EXPECT_EQ(r.exit_code, 1) << r.output;
  expect_parts(r.output, {"the gradient has been 0 for 10 steps", "at step 10", "does not learn any more"});
}

/// The real disk, on which no file of a checkpoint of the steps [from, until) can be made.
class FullDisk final : public FileSystem {
 public:
  FullDisk(int64_t first, int64_t last) : from(first), until(last) {}
  const int64_t from, until;
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    const size_t name = path.find("/checkpoints/step-");
    if (name != std::string::npos) {
      const int64_t step = std::stoll(path.substr(name + 18, 8));
      if (step >= from && step < until)
        throw Error(fmt::format("cannot write '{}': No space left on device", path));
    }
    return real_file_system().create(path);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& p) override {
    return real_file_system().open_append(p);
  }
  std::unique_ptr<MappedFile> map(const std::string& p) override { return real_file_system().map(p); }
  std::string read(const std::string& p) override { return real_file_system().read(p); }
  bool exists(const std::string& p) override { return real_file_system().exists(p); }
  uint64_t size(const std::string& p) override { return real_file_system().size(p); }
  std::vector<std::string> list(const std::string& p) override { return real_file_system().list(p); }
  void create_folders(const std::string& p) override { real_file_system().create_folders(p); }
  void rename(const std::string& a, const std::string& b) override { real_file_system().rename(a, b); }
  void remove_all(const std::string& p) override { real_file_system().remove_all(p); }
  void sync_folder(const std::string& p) override { real_file_system().sync_folder(p); }
  uint64_t free_bytes(const std::string& p) override { return real_file_system().free_bytes(p); }
};

/// Does something when a step begins (counted from 1).
struct AtStep final : RunObserver {
  AtStep(int64_t at_step, std::function<void()> what) : step(at_step), act(std::move(what)) {}
  void tensor(const std::string&, const Tensor&) override {}
  void enters(StepPart part) override {
    if (part == StepPart::data && ++steps == step) act();
  }
  int64_t step, steps = 0;
  std::function<void()> act;
};

/// Runs in this process; the message and hint of its error, or "". What it logs is added to `log`.
std::string run_here(FileSystem& files, const std::string& recipe, RunObserver& observer,
                     const std::string& log_path) {
  log::keep_in(log_path);
  std::string message;
  try {
    Trainer trainer(files, load_recipe(recipe, {}), StartMode::resume_or_start);
    trainer.observe(&observer);
    trainer.run();
  } catch (const Error& e) {
    message = std::string(e.what()) + "\n" + e.hint();
  }
  log::keep_in("");
  return message;
}

TEST_F(Failing, ThreeFailedSavesEndARun) {
  FullDisk disk(8, 1000);
  AtStep nothing(0, [] {});
  const std::string message = run_here(disk, recipe("full"), nothing, at("full.log"));
  expect_parts(message, {"3 checkpoints in a row were not written, the last of step 14", "No space left",
                         "it resumes from step 4 ('" + at("full") + "/checkpoints/step-00000004')"});
  const std::string log = read_text(at("full.log"));
  for (const char* step : {"step 8", "step 12"})
    EXPECT_EQ(count_of(log, fmt::format("warning: the checkpoint of {} was not written", step)), 1) << log;
  const ProcessResult r = ingot("full");
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(at("whole"), at("full")), "");
}

TEST_F(Failing, OneFailedSaveDoesNot) {
  FullDisk disk(8, 9);
  AtStep observer(0, [] {});
  EXPECT_EQ(run_here(disk, recipe("once"), observer, at("once.log")), "");
  EXPECT_EQ(count_of(read_text(at("once.log")), "was not written"), 1) << read_text(at("once.log"));
  EXPECT_EQ(difference(at("whole"), at("once")), "");
}

TEST_F(Failing, AFolderThatVanishesIsNamedAtOnce) {
  AtStep moves(5, [&] { fs::rename(at("gone"), at("moved")); });
  const std::string message = run_here(real_file_system(), recipe("gone"), moves, at("gone.log"));
  expect_parts(message, {"the run folder '" + at("gone") + "' is gone", "step 5", "move it back"});
  fs::remove_all(at("gone"));  // a save that was under way may have made it again
  fs::rename(at("moved"), at("gone"));
  const ProcessResult r = ingot("gone");
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(at("whole"), at("gone")), "");
}

TEST_F(Failing, ARemovedLockIsWarnedOfOnce) {
  AtStep removes(5, [&] { fs::remove(at("lock") + "/run.lock"); });
  EXPECT_EQ(run_here(real_file_system(), recipe("lock"), removes, at("lock.log")), "");
  EXPECT_EQ(count_of(read_text(at("lock.log")), "run.lock' was removed"), 1);
}

TEST_F(Failing, ADiskThatCannotHoldTheCheckpointsIsRefusedBeforeTheFirstStep) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount a small file system";
  const std::string disk = at("disk");
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=3m") != 0) GTEST_SKIP() << "cannot mount a tmpfs here";
  const ProcessResult r =
      ingot("disk", {"--run.folder=" + disk + "/run", "--checkpoint.every=1", "--checkpoint.keep_last=20"});
  EXPECT_EQ(r.exit_code, 1) << r.output;
  expect_parts(r.output, {"21 more must lie there at once (checkpoint.keep_last = 20", "hint: free "});
  EXPECT_EQ(r.output.find("step 1/24"), std::string::npos) << r.output;
  const ProcessResult fits = ingot("disk", {"--run.folder=" + disk + "/run", "--checkpoint.keep_last=1"});
  EXPECT_EQ(fits.exit_code, 0) << fits.output;
  ::umount(disk.c_str());
}

TEST_F(Failing, AnOlderCheckpointThatCannotBeReadDoesNotStopAResume) {
  const Arguments all{"--checkpoint.keep_last=0"};
  Process p(command("old", all));
  wait_for_rows(p, "old", 10);
  p.signal(SIGTERM);
  EXPECT_EQ(p.wait().exit_code, 130);
  const std::string first = at("old") + "/checkpoints/step-00000004/manifest.json";
  ASSERT_TRUE(fs::exists(first));
  fs::remove(first);
  fs::create_directory(first);
  const ProcessResult r = ingot("old", all);
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(count_of(r.output, "step-00000004/manifest.json"), 1) << r.output;
  EXPECT_EQ(difference(at("whole"), at("old")), "");
}

TEST_F(Failing, ADamagedRecordDoesNotStopAResume) {
  Process p(command("record", {}));
  wait_for_rows(p, "record", 15);
  p.signal(SIGTERM);
  EXPECT_EQ(p.wait().exit_code, 130);
  const std::string metrics = at("record") + "/metrics.jsonl";
  std::string text = read_text(metrics);
  const size_t third = text.find("\"step\":3,");
  ASSERT_NE(third, std::string::npos);
  text[third] = '!';
  write_text(metrics, text);
  write_text(at("record") + "/samples.jsonl", "\n" + read_text(at("record") + "/samples.jsonl"));
  const ProcessResult r = ingot("record");
  EXPECT_EQ(r.exit_code, 0) << r.output;
  expect_parts(r.output, {"metrics.jsonl.damaged'", "metrics.jsonl:3", "samples.jsonl.damaged'"});
  EXPECT_EQ(losses(at("record")).size(), 23u);
  EXPECT_EQ(samples(at("record")), samples(at("whole")));
  EXPECT_EQ(checkpoint_content(at("record")), checkpoint_content(at("whole")));
}

TEST_F(Failing, ShardsThatShrinkAreNamed) {
  const std::string data = at("shrinking");
  fs::copy(at("data"), data, fs::copy_options::recursive);
  Process p(command("shrunk", {"--data.folder=" + data, "--phases.0.steps=100000"}));
  wait_for_rows(p, "shrunk", 3);
  std::string shard;
  for (const auto& f : fs::recursive_directory_iterator(data))
    if (f.path().extension() == ".tokens" && f.path().string().find("train") != std::string::npos)
      shard = f.path();
  fs::resize_file(shard, 0);
  const ProcessResult r = p.wait();
  EXPECT_EQ(r.exit_code, 1) << "signal " << r.signal << "\n" << r.output;
  expect_parts(r.output, {"error: '" + shard + "' could not be read", "hint: "});
}

TEST_F(Failing, ARunWithoutACheckpointSaysThatItStartsAgain) {
  const Arguments rarely{"--checkpoint.every=1000", "--phases.0.steps=1000"};
  Process p(command("again", rarely));
  wait_for_rows(p, "again", 3);
  p.signal(SIGKILL);
  p.wait();
  const ProcessResult r = ingot("again");
  EXPECT_EQ(r.exit_code, 0) << r.output;
  expect_parts(r.output, {"has no checkpoint yet: starting again"});
  EXPECT_EQ(difference(at("whole"), at("again")), "");
}

}  // namespace ingot::test::failing_faults_test
