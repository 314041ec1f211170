// A guard with real processes: runs that are killed, stopped, damaged, or that end with an error, and guards
// that are killed. Where the layout stays, a run ends with the bits of one that nobody disturbed.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/host_name.h"
#include "base/philox.h"
#include "guard/journal.h"
#include "guard/run_reader.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::live_test {

namespace fs = std::filesystem;
using namespace guard;

class Live : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    write_text(path("text.txt"), tiny_text(4000));
    write_text(path("whole.toml"), recipe("whole"));
    const ProcessResult r = run_process({INGOT_BINARY, "run", path("whole.toml")});
    ASSERT_EQ(r.exit_code, 0) << r.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& name) { return *folder_ / name; }
  static std::string recipe(const std::string& run) {
    return keeping_all(tiny_recipe(path(run), path("data"), path("text.txt")));
  }

  /// Writes recipe and job of a run; `program` starts it.
  static std::string write_job(const std::string& run, const std::string& program,
                               const std::string& extra = "") {
    write_text(path(run + ".toml"), recipe(run));
    write_text(
        path(run + "-job.toml"),
        fmt::format("run = \"{}\"\nrules = \"{}/recipes/guard-rules.toml\"\npoll = 0.02\nstop_seconds = 20\n"
                    "burn_in = [\"true\"]\n"
                    "command = [{}]\n{}\n",
                    path(run), INGOT_SOURCE_DIR, program, extra));
    return path(run + "-job.toml");
  }
  static std::string plain(const std::string& run) {
    return fmt::format("\"{}\", \"run\", \"{}\"", INGOT_BINARY, path(run + ".toml"));
  }
  /// A shell around the run: `script` sees $INGOT, $RECIPE and the number of the start in $START.
  static std::string scripted(const std::string& run, const std::string& script) {
    const std::string file = path(run + ".sh");
    write_text(file, fmt::format("INGOT={}\nRECIPE={}\nSTART=$INGOT_GUARD_START\nRUN={}\n{}\n", INGOT_BINARY,
                                 path(run + ".toml"), path(run), script));
    return fmt::format("\"sh\", \"{}\"", file);
  }
  static void use_rules(const std::string& job, const std::string& rules) {
    write_text(job, std::regex_replace(read_text(job), std::regex("rules = \"[^\"]*\""),
                                       "rules = \"" + rules + "\""));
  }
  static std::vector<Entry> journal(const std::string& run) {
    return FileStore(real_file_system(), path(run) + "/guard").entries();
  }
  static std::vector<std::string> decisions(const std::string& run) {
    std::vector<std::string> rules;
    for (const Entry& e : journal(run))
      if (e.event == guard::Event::decided) rules.push_back(e.rule);
    return rules;
  }
  using Words = std::vector<std::string>;
  static inline std::unique_ptr<TempDir> folder_;
};

TEST_F(Live, AnUndisturbedRunEndsWithItsBits) {
  const ProcessResult r = run_process({INGOT_BINARY, "guard", write_job("quiet", plain("quiet"))});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(path("whole"), path("quiet")), "");
  EXPECT_EQ(decisions("quiet"), Words{"first start"});
  const auto status = nlohmann::json::parse(read_text(path("quiet/status/rank-0.json")));
  EXPECT_EQ(status["step"], 24);
  EXPECT_EQ(status["start"], 1);
  const Books books = Books::parse(read_text(path("quiet/guard/books.json")));
  int64_t sum = 0;
  for (const auto& c : enum_names(Cause{})) sum += books.of_ms(c.value);
  EXPECT_EQ(sum, books.total_ms());
  EXPECT_EQ(books.step(), 24);
}

TEST_F(Live, AKilledJobIsRestarted) {
  // The rules wait 25 s for a node to fall silent; nothing else is different here.
  std::string rules = read_text(INGOT_SOURCE_DIR "/recipes/guard-rules.toml");
  rules = std::regex_replace(rules, std::regex("silence >= 25s"), "silence >= 0.2s");
  write_text(path("quick-rules.toml"), rules);
  const std::string job =
      write_job("killed", scripted("killed", R"([ $START -le 2 ] || exec $INGOT run $RECIPE
$INGOT run $RECIPE & pid=$!
until ls $RUN/checkpoints/step-*$((START * 4))/manifest.json >/dev/null 2>&1; do sleep 0.01; done
kill -9 $pid; wait $pid; kill -9 $$)"));
  use_rules(job, path("quick-rules.toml"));
  const ProcessResult r = run_process({INGOT_BINARY, "guard", job});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(path("whole"), path("killed")), "");
  EXPECT_EQ(decisions("killed"), (Words{"first start", "rank lost", "rank lost"})) << r.output;
  const ProcessResult again = run_process({INGOT_BINARY, "guard", "explain", job});
  EXPECT_EQ(again.exit_code, 0) << again.output;
}

TEST_F(Live, AStoppedJobIsFoundAndADamagedCheckpointIsPassedOver) {
  std::string rules = read_text(INGOT_SOURCE_DIR "/recipes/guard-rules.toml");
  rules = std::regex_replace(rules, std::regex("silence > 60s and silent_steps > 5"), "silence > 3s");
  write_text(path("hang-rules.toml"), rules);
  const std::string job = write_job(
      "stopped",
      scripted("stopped",
               "[ $START = 1 ] || exec $INGOT run $RECIPE\n"
               "nice $INGOT run $RECIPE & pid=$!\n"  // this script gets a core before the run does
               "trap 'kill -9 $pid' TERM\n"
               "while ! [ -f $RUN/checkpoints/step-00000012/manifest.json ]; do sleep 0.01; done\n"
               "kill -STOP $pid\n"  // on a busy machine after later saves: the last one is damaged
               "last=$(ls -d $RUN/checkpoints/step-*/manifest.json | tail -1)\n"
               "for f in ${last%/*}/*.safetensors; do\n"
               "  printf 'xxxxxxxx' | dd of=$f bs=1 seek=$(($(stat -c %s $f) - 8)) conv=notrunc 2>/dev/null\n"
               "done\n"
               "wait $pid; wait $pid; exit 1"));
  use_rules(job, path("hang-rules.toml"));
  const ProcessResult r = run_process({INGOT_BINARY, "guard", job});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(path("whole"), path("stopped")), "");
  EXPECT_EQ(decisions("stopped"), (Words{"first start", "hang"})) << r.output;
  EXPECT_NE(read_text(path("stopped/guard/job-2.log")).find("skipping a damaged checkpoint"),
            std::string::npos);
}

TEST_F(Live, ACrashLoopIsAskedAndAnswered) {
  const std::string job = write_job("loop", scripted("loop",
                                                     "[ -f $RUN/mended ] && exec $INGOT run $RECIPE\n"
                                                     "mkdir -p $RUN\n"
                                                     "echo \"{\\\"format\\\": 1, \\\"start\\\": $START, "
                                                     "\\\"kind\\\": \\\"bug\\\"}\" >$RUN/failure.json\n"
                                                     "exit 3"));
  Process guard({INGOT_BINARY, "guard", job});
  const double begin = monotonic_seconds();
  const auto asks = [&] {
    for (const auto& f : fs::directory_iterator(path("loop/guard")))
      if (f.path().filename().string().starts_with("question-")) return true;
    return false;
  };
  while (monotonic_seconds() - begin < 30 && !(fs::exists(path("loop/guard")) && asks()))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(asks());
  EXPECT_EQ(decisions("loop"), (Words{"first start", "bug", "bug"}));
  const ProcessResult second = run_process({INGOT_BINARY, "guard", job});
  EXPECT_EQ(second.exit_code, 1) << "two guards on one run";
  EXPECT_NE(second.output.find("guard"), std::string::npos) << second.output;
  write_text(path("loop/mended"), "");
  const ProcessResult answered = run_process({INGOT_BINARY, "guard", "answer", path("loop"), "restart"});
  EXPECT_EQ(answered.exit_code, 0) << answered.output;
  const ProcessResult r = guard.wait();
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(path("whole"), path("loop")), "");
}

TEST_F(Live, AGuardThatIsKilledAgainAndAgainStartsNoSecondJob) {
  const std::string job =
      write_job("orphan", scripted("orphan",
                                   "echo $START >>$RUN.starts\n"
                                   "until [ -f $RUN.go -o ! -d $RUN ]; do sleep 0.01; done\n"
                                   "exec $INGOT run $RECIPE"));
  for (int kills = 0; kills < 12; ++kills) {
    Process guard({INGOT_BINARY, "guard", job});
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 17 * kills));
    guard.signal(SIGKILL);
    const ProcessResult killed = guard.wait();
    EXPECT_EQ(killed.signal, SIGKILL) << "the job that lives kept this guard out: " << killed.output;
  }
  Process guard({INGOT_BINARY, "guard", job});
  write_text(path("orphan.go"), "");
  const ProcessResult r = guard.wait();
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(read_text(path("orphan.starts")), "1\n");
  EXPECT_EQ(difference(path("whole"), path("orphan")), "");
}

TEST_F(Live, AMachineThatFailsItsBurnInIsAPersons) {
  const std::string job =
      write_job("suspect", scripted("suspect", R"([ -f $RUN/mended ] && exec $INGOT run $RECIPE
mkdir -p $RUN
echo "{\"format\": 1, \"start\": $START, \"kind\": \"late\", \"host\": \"$(hostname)\"}" >$RUN/failure.json
exit 1)"));
  write_text(job,
             std::regex_replace(read_text(job), std::regex("burn_in = [^\n]*"),
                                fmt::format("burn_in = [\"{}\", \"burnin\", \"--seconds=0.2\", \"--disk=0\", "
                                            "\"--least-gflops=1e8\"]",
                                            INGOT_BINARY)));
  Process guard({INGOT_BINARY, "guard", job});
  const double begin = monotonic_seconds();
  const auto asks = [&] {
    if (!fs::exists(path("suspect/guard"))) return false;
    for (const auto& f : fs::directory_iterator(path("suspect/guard")))
      if (f.path().filename().string().starts_with("question-")) return true;
    return false;
  };
  while (monotonic_seconds() - begin < 60 && !asks())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(asks());
  const std::string test = read_text(path("suspect/guard/burn-in-1-" + host_name() + ".txt"));
  EXPECT_NE(test.find("problem  products in fp32"), std::string::npos) << test;
  EXPECT_NE(test.find(" of 3 tests failed"), std::string::npos) << test;
  EXPECT_EQ(test.find("will not work"), std::string::npos) << "it works, and is slow: " << test;
  EXPECT_EQ(decisions("suspect"), (Words{"first start", "late rank", "late rank"}));
  EXPECT_NE(journal("suspect").back().event, guard::Event::job);
  write_text(path("suspect/mended"), "");
  EXPECT_EQ(run_process({INGOT_BINARY, "guard", "answer", path("suspect"), "restart"}).exit_code, 0);
  const ProcessResult r = guard.wait();
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(path("whole"), path("suspect")), "");
}

TEST_F(Live, AJobThatWillNotEndIsKilledWithItsChildren) {
  const std::string job = write_job("deaf", scripted("deaf", R"([ $START = 1 ] || exec $INGOT run $RECIPE
trap '' TERM
mkdir -p $RUN/status
say='{"format": 1, "start": 1, "rank": 0, "host": "h", "start_step": 0, "step": 0}'
echo "$say" >$RUN/status/rank-0.json
sleep 1000 & echo $! >$RUN.child
wait; wait)"));
  write_text(path("deaf-rules.toml"), R"([[rules]]
name = "deaf"
when = 'job == "running" and silence > 3s'
act = ["stop", "restart"]
limit = "1 in 1h"
)");
  use_rules(job, path("deaf-rules.toml"));
  write_text(job, std::regex_replace(read_text(job), std::regex("stop_seconds = 20"), "stop_seconds = 2"));
  const ProcessResult r = run_process({INGOT_BINARY, "guard", job});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(decisions("deaf"), (Words{"first start", "deaf"})) << r.output;
  EXPECT_EQ(difference(path("whole"), path("deaf")), "");
  const std::string stat = "/proc/" + std::to_string(std::stoi(read_text(path("deaf.child")))) + "/stat";
  EXPECT_TRUE(!fs::exists(stat) || read_text(stat).find(") Z ") != std::string::npos) << "its child lives";
}

TEST_F(Live, FailureFilesSayWhy) {
  write_text(path("full.toml"), recipe("full"));
  const ProcessResult r = run_process({INGOT_BINARY, "run", path("full.toml"), "--phases.0.lr=1e38",
                                       "--phases.0.warmup=0", "--optimizer.weight_decay=100"});
  ASSERT_EQ(r.exit_code, 1) << r.output;
  const auto failure = FailureReport::parse(read_text(path("full/failure.json")), 0);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::not_finite) << failure->message;
  EXPECT_GT(failure->step, 0);
  EXPECT_FALSE(failure->node.empty());
}

TEST_F(Live, ReadersSurviveTornForeignHugeAndFutureFiles) {
  TempDir run;
  fs::create_directories(run / "status");
  fs::create_directories(run / "checkpoints/step-00000008");
  fs::create_directories(run / "checkpoints/step-00000012.tmp");
  fs::create_directories(run / "checkpoints/step-99999999999999999999999");
  write_text(run / "checkpoints/step-00000008/manifest.json", "{}");
  RunReader reader(std::string(run / "").substr(0, std::string(run / "").size() - 1));
  const std::string good =
      R"({"format": 1, "start": 3, "rank": 0, "host": "h", "start_step": 4, "step": 9, "step_seconds": 0.5})";
  const auto step = [&](const std::string& text) {
    write_text(run / "status/rank-0.json", text);
    Observation seen;
    reader.read(seen, 3, run / "none.log");
    EXPECT_EQ(seen.checkpoints, std::vector<int64_t>{8});
    return seen.first.step;
  };
  EXPECT_EQ(step(good), 9);
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_EQ(step(good.substr(0, cut)), -1);
  EXPECT_EQ(step(R"({"format": 1, "start": 2, "rank": 0, "step": 9})"), -1) << "another start";
  EXPECT_EQ(step(R"({"format": 1, "start": 3, "rank": 0, "step": 1e300, "time": 9e18})"), -1);
  EXPECT_EQ(step(R"({"format": 1, "start": 3, "rank": "zero", "step": [9]})"), -1);
  EXPECT_EQ(step(std::string(3 << 20, ' ') + good), -1) << "huge";
  EXPECT_FALSE(FailureReport::parse(R"({"format": 1, "start": 2, "kind": "bug"})", 3)) << "another start";
  EXPECT_EQ(FailureReport::parse(R"({"format": 1, "start": 3, "kind": "strange"})", 3)->kind,
            FailureKind::unknown);
}

}  // namespace ingot::test::live_test
