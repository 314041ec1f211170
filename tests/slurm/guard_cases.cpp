// `ingot guard` under a real Slurm (with_slurm starts it and this program) with the templates of recipes/: a
// job that is pre-empted, whose node is lost, that is asked to end or that hangs is started again, once, and
// ends with the weights of an undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "guard/journal.h"
#include "slurm_run.h"
#include "support/tiny_run.h"

namespace ingot::test {
namespace {

namespace fs = std::filesystem;
using guard::Entry;
using Words = std::vector<std::string>;

class SlurmGuard : public ::testing::Test {
 protected:
  std::string path(const std::string& name) { return folder_ / name; }
  /// The shipped rules but for the one of slow ranks: ranks share cores here, and any of them can look slow.
  std::string shipped_rules() {
    std::string text = read_text(INGOT_SOURCE_DIR "/recipes/guard-rules.toml");
    const size_t slow = text.find("[[rules]]\nname = \"straggler\"");
    EXPECT_NE(slow, text.npos);
    write_text(path("rules.toml"), text.erase(slow, text.find("[[rules]]", slow + 1) - slow));
    return path("rules.toml");
  }
  /// Starts a guard of the run and waits for the run's first checkpoint. `options` are sbatch's; rules:
  /// empty for shipped_rules().
  void start(const std::string& options, std::string rules = {}) {
    if (rules.empty()) rules = shipped_rules();
    std::string command;
    for (const char* word : {"srun", "--mpi=pmix", "--kill-on-bad-exit=1", INGOT_BINARY, "run"})
      command += fmt::format("\"{}\", ", word);
    command += fmt::format("\"{}\", \"--kernels=any\"", slurm_recipe(folder_));
    for (const std::string& o : kSlurmOptions) command += fmt::format(", \"{}\"", o);
    write_text(path("cluster.toml"), read_text(INGOT_SOURCE_DIR "/recipes/guard-slurm.toml") + cluster_);
    write_text(path("job.toml"),
               fmt::format("run = \"{}\"\nrules = \"{}\"\ncluster = \"{}\"\noptions = [\"--ntasks=4\", {}]\n"
                           "poll = 0.1\nstop_seconds = 30\ncommand = [{}]\n",
                           path("run"), rules, path("cluster.toml"), options, command));
    guard_.emplace(Words{INGOT_BINARY, "guard", path("job.toml")});
    ASSERT_TRUE(comes([&] { return fs::exists(path("run/checkpoints/latest")) || !guard_->running(); }));
    ASSERT_TRUE(guard_->running()) << guard_->wait().output;
  }
  /// A file of one rule.
  std::string rule(const std::string& name, const std::string& when, const std::string& act) {
    write_text(path("rules.toml"),
               fmt::format("[[rules]]\nname = \"{}\"\nwhen = '{}'\nact = [{}]\nlimit = \"1 in 24h\"\n", name,
                           when, act));
    return path("rules.toml");
  }
  /// What the guard asks a person, whom it would wait for; empty: nothing.
  std::string question() {
    for (const fs::directory_entry& file : fs::directory_iterator(path("run/guard")))
      if (file.path().filename().string().starts_with("question-")) return read_text(file.path());
    return "";
  }
  /// Waits for the end of the run after exactly these decisions, in which it was started twice.
  void expect_the_same_end(const std::string& decided) {
    ASSERT_TRUE(comes([&] { return !guard_->running() || !question().empty(); }));
    ASSERT_EQ(question(), "");
    const ProcessResult r = guard_->wait();
    ASSERT_EQ(r.exit_code, 0) << r.output;
    Words rules;
    for (const Entry& e : journal())
      if (e.event == guard::Event::decided) rules.push_back(e.rule);
    EXPECT_EQ(rules, (Words{"first start", decided})) << r.output;
    EXPECT_NE(log(2).find("resuming at step "), std::string::npos) << log(2);
    EXPECT_FALSE(fs::exists(path("run/guard/start-3.json")));
    EXPECT_EQ(difference(path("run"), undisturbed_run()), "");
  }
  std::vector<Entry> journal() { return guard::FileStore(real_file_system(), path("run/guard")).entries(); }
  /// What a start printed, but for the steps.
  std::string log(int start) {
    return slurm(fmt::format("grep -v '^step ' {}", path(fmt::format("run/guard/job-{}.log", start))));
  }
  nlohmann::json status() { return nlohmann::json::parse(read_text(path("run/status/rank-0.json"))); }

  TempDir folder_;
  std::string cluster_;  // lines beside those of the shipped file
  std::optional<Process> guard_;
};

TEST_F(SlurmGuard, AJobThatIsPreemptedIsStartedAgain) {
  start("\"--partition=low\"");
  slurm(fmt::format("sbatch --partition=high --ntasks=8 --output={} --wrap 'sleep 1'", path("other")));
  expect_the_same_end("preempted");
  EXPECT_GT(interrupted_at(log(1)), 0) << log(1);
  EXPECT_NE(log(2).find(fmt::format("resuming at step {} ", interrupted_at(log(1)))), std::string::npos)
      << log(2);
}

TEST_F(SlurmGuard, ALostNodeIsLeftOut) {
  const char* left = std::getenv("INGOT_SLURM_LEFT");
  if (left == nullptr) GTEST_SKIP() << "with_slurm could not make nodes that can be lost";
  cluster_ =
      "exclude = [\"scontrol\", \"update\", \"nodename={node}\", \"state=drain\", \"reason=ingot guard\"]\n";
  start("\"--partition=pair\"");
  EXPECT_EQ(status()["host"], "left");
  ::kill(std::atoi(left), SIGKILL);
  expect_the_same_end("node lost");
  EXPECT_EQ(status()["host"], "right");
  Words excluded;
  for (const Entry& e : journal())
    if (e.event == guard::Event::done) excluded.insert(excluded.end(), e.nodes.begin(), e.nodes.end());
  EXPECT_EQ(excluded, Words{"left"});
  EXPECT_NE(slurm("sinfo --noheader --nodes=left --format=%T").find("dr"), std::string::npos)
      << "drained, or draining";
}

TEST_F(SlurmGuard, AJobThatIsAskedToEndSavesFirst) {
  start("\"--partition=low\"", rule("once", "log(\"step 100/\")", "\"stop\", \"restart\""));
  expect_the_same_end("once");
  EXPECT_GT(interrupted_at(log(1)), 0) << log(1);
  EXPECT_NE(log(2).find(fmt::format("resuming at step {} ", interrupted_at(log(1)))), std::string::npos)
      << log(2);
}

TEST_F(SlurmGuard, AJobThatDoesNotEndIsKilled) {
  start("\"--partition=low\"", rule("hang", "job == \"running\" and silence > 10s", "\"stop\", \"restart\""));
  ::kill(status()["pid"].get<int>(), SIGSTOP);
  expect_the_same_end("hang");
  EXPECT_TRUE(fs::exists(path("run/guard/command-kill.txt")))
      << "SIGUSR1 does not wake a rank that stands still";
}

}  // namespace
}  // namespace ingot::test
