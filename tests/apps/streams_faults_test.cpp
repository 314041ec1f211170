// Standard streams that are closed, full, gone or not read, and the signals that ask a run to save.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "report/metrics.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::streams_faults_test {

namespace fs = std::filesystem;

class Streams : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    write_text(at("text.txt"), tiny_text(3000));
    recipe("whole");
    const ProcessResult r = shell(run("whole"));
    ASSERT_EQ(r.exit_code, 0) << r.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string at(const std::string& name) { return *folder_ / name; }
  static std::string recipe(const std::string& name) {
    write_text(at(name) + ".toml", tiny_recipe(at(name), at("data"), at("text.txt")));
    return at(name) + ".toml";
  }
  static std::string run(const std::string& name) {
    return "'" INGOT_BINARY "' run --kernels=any '" + recipe(name) + "'";
  }
  static ProcessResult shell(const std::string& command) { return run_process({"/bin/bash", "-c", command}); }
  /// Waits until a run has done `rows` steps.
  static void wait_for_rows(Process& p, const std::string& name, int64_t rows) {
    const std::string metrics = at(name) + "/" + run_files::kMetrics;
    for (std::string text; p.running(); text = read_text(metrics)) {
      if (std::count(text.begin(), text.end(), '\n') >= rows) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  /// A run that was stopped and saved ends like the undisturbed one.
  static void expect_resumes(const std::string& name) {
    EXPECT_FALSE(checkpoint_content(at(name)).empty()) << name << " saved nothing";
    const ProcessResult r = shell(run(name));
    EXPECT_EQ(r.exit_code, 0) << r.output;
    EXPECT_NE(r.output.find("resuming at step"), std::string::npos) << r.output;
    EXPECT_EQ(difference(at("whole"), at(name)), "");
  }
  static inline std::unique_ptr<TempDir> folder_;
};

TEST_F(Streams, ClosedOnesAreNotTheRunsFiles) {
  int number = 0;
  for (const std::string closed : {">&- 2>&-", "<&- >&- 2>&-", "2>&-", "<&-"}) {
    const std::string name = "closed" + std::to_string(number++);
    const ProcessResult r = shell(run(name) + " " + closed);
    EXPECT_EQ(r.exit_code, 0) << closed << ": signal " << r.signal;
    EXPECT_EQ(difference(at("whole"), at(name)), "") << closed;
    for (const auto& f : fs::recursive_directory_iterator(at(name))) {
      if (f.path().filename() != "run.lock" && f.path().extension() != ".jsonl") continue;
      EXPECT_EQ(read_text(f.path()).find("roofline  "), std::string::npos) << closed << ": " << f.path();
    }
  }
}

TEST_F(Streams, AFullDiskIsAnErrorAndNoAbort) {
  for (const std::string& command : {"run '" + recipe("full") + "' --print-config",
                                     std::string("model zaya1-8b"), std::string("--help")}) {
    const ProcessResult r = shell("'" INGOT_BINARY "' " + command + " > /dev/full");
    EXPECT_EQ(r.exit_code, 1) << command << "\n" << r.output;
    EXPECT_NE(r.output.find("cannot write to standard output: No space left on device"), std::string::npos)
        << r.output;
  }
  const ProcessResult lost = shell("'" INGOT_BINARY "' run absent.toml > /dev/full 2>&1");
  EXPECT_EQ(lost.exit_code, 1) << "signal " << lost.signal;
  const ProcessResult r = shell(run("log") + " 2> /dev/full > /dev/null");
  EXPECT_EQ(r.exit_code, 0) << "signal " << r.signal;
  EXPECT_EQ(difference(at("whole"), at("log")), "");
}

TEST_F(Streams, ATerminalThatClosesSavesTheRun) {
  recipe("hangup");
  Process p({INGOT_BINARY, "run", "--kernels=any", at("hangup.toml")});
  wait_for_rows(p, "hangup", 3);
  p.signal(SIGHUP);
  const ProcessResult r = p.wait();
  EXPECT_EQ(r.exit_code, 130) << "signal " << r.signal << "\n" << r.output;
  expect_resumes("hangup");
}

TEST_F(Streams, UnderNohupARunGoesOn) {
  recipe("nohup");
  Process p({"/bin/bash", "-c",
             "trap '' HUP; exec '" INGOT_BINARY "' run --kernels=any '" + at("nohup.toml") + "'"});
  wait_for_rows(p, "nohup", 3);
  p.signal(SIGHUP);
  EXPECT_EQ(p.wait().exit_code, 0);
  EXPECT_EQ(difference(at("whole"), at("nohup")), "");
}

TEST_F(Streams, AReaderThatLeavesSavesTheRun) {
  const ProcessResult r = shell(run("head") + " 2>&1 | grep -m 1 'step 2/'; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(r.exit_code, 130) << r.output;
  EXPECT_LT(losses(at("head")).size(), 24u);
  expect_resumes("head");
}

TEST_F(Streams, AReaderThatStallsDoesNotKeepARunFromSaving) {
  recipe("stall");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const std::string filling(4096, 'x');
  while (::write(ends[1], filling.data(), filling.size()) > 0) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  // The first lines that the run logs will wait for the reader: it gets to its steps as the pipe is read, and
  // then nobody reads.
  const std::string steps = " --phases.0.steps=100000 --run.log_every=1";
  Process p({"/bin/bash", "-c", "exec " + run("stall") + steps + fmt::format(" 2>&{}", ends[1])});
  ::close(ends[1]);
  std::string drained(1 << 16, ' ');
  const std::string metrics = at("stall") + "/" + run_files::kMetrics;
  while (p.running() && read_text(metrics).empty())
    if (::read(ends[0], drained.data(), 4096) <= 0) break;
  // The pipe fills: the run stands still.
  for (size_t before = 0, now; p.running(); before = now) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    now = read_text(metrics).size();
    if (now == before) break;
  }
  ASSERT_TRUE(p.running());
  p.signal(SIGTERM);
  for (int i = 0; i < 200 && p.running(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(p.running()) << "it still waits for its reader";
  EXPECT_EQ(p.wait().exit_code, 130);
  EXPECT_EQ(checkpoint_content(at("stall"))["step"], std::to_string(losses(at("stall")).size()));
  ::close(ends[0]);
}

}  // namespace ingot::test::streams_faults_test
