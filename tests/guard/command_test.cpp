// A cluster that is spoken to by commands: jobs start once, answers that hang, lie or make no sense are told
// once and never acted upon, nodes are tested and left out, and a run that is pre-empted ends with its bits.
// The commands of this machine end a job with all of its processes, and start none beside what lives.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "guard/command_adaptor.h"
#include "guard/journal.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::command_test {

using namespace guard;
namespace fs = std::filesystem;

/// A cluster of one shell script; the files of its folder say how it behaves.
class Cluster : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(in("cluster"), R"sh(cd "$(dirname "$0")"
case $1 in
start)
  echo "$*" >>starts
  [ -f refuse ] && { echo 'no such partition'; exit 1; }
  setsid sh "$3" >/dev/null 2>&1 &
  echo $! >job-$2
  [ -f hang-start ] && sleep 100
  echo "job-$2;cluster" ;;
find) [ -f hang-find ] && sleep 100; [ -f "job-$2" ] && echo "job-$2"; exit 0 ;;
state)
  [ -f hang-state ] && sleep 100
  [ -f say ] && { cat say; exit 0; }
  if kill -0 "$(cat "$2")" 2>/dev/null; then echo RUNNING; else echo ENDED; fi ;;
stop) kill -TERM "$(cat "$2")" ;;
kill) [ -f deaf ] && { rm deaf; exit 1; }; kill -KILL "$(cat "$2")" ;;
nodes) cat nodes ;;
exclude) echo "$2" >>excluded ;;
burn)
  [ -f "slow-$2" ] && sleep 100
  [ -f "gone-$2" ] && { echo 'no such account' >&2; exit 1; }
  [ -f "bad-$2" ] && { echo '1 of 9 tests failed'; exit 1; }
  exit 0 ;;
esac
)sh");
    write_text(in("nodes"), "");
  }
  std::string in(const std::string& name) const { return folder_ / name; }
  void flag(const std::string& name) const { write_text(in(name), ""); }
  std::string text(const std::string& more = "") const {
    const auto line = [&](const char* key, const std::string& words) {
      return fmt::format("{} = [\"sh\", \"{}\", {}]\n", key, in("cluster"), words);
    };
    return line("start", R"("start", "{name}", "{script}", "{excluded}", "{options}")") +
           line("find", R"("find", "{name}")") + line("state", R"("state", "{id}")") +
           line("stop", R"("stop", "{id}")") + line("kill", R"("kill", "{id}")") +
           line("nodes", R"("nodes")") + line("exclude", R"("exclude", "{node}")") +
           line("burn_in", R"("burn", "{node}")") +
           "running = [\"RUNNING\"]\nwaiting = [\"WAITING\"]\nended = [\"ENDED\"]\ndown = [\"down\"]\n"
           "every = 0.05\nseconds = 1\nburn_in_seconds = 1\n" +
           more;
  }
  CommandTemplates templates() const {
    return read_config<CommandTemplates>(parse_toml(text(), "cluster.toml"));
  }
  CommandAdaptor adaptor(const std::string& script) const {
    return {in("run"), {"sh", "-c", script}, templates(), {"--nodes=2"}, 0};
  }
  std::string read(const std::string& name) const { return fs::exists(in(name)) ? read_text(in(name)) : ""; }
  int64_t alerts() const {
    const std::string all = read("run/guard/alerts.jsonl");
    return std::count(all.begin(), all.end(), '\n');
  }
  /// Looks until `there`, at most 10 seconds.
  static bool looks(CommandAdaptor& a, const std::function<bool(const Observation&)>& there) {
    const double begin = monotonic_seconds();
    while (monotonic_seconds() - begin < 10) {
      if (there(a.observe())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  static bool ended(const Observation& o) { return o.job == JobState::ended; }
  TempDir folder_;
};

TEST_F(Cluster, AJobRunsOnceAndItsScriptSaysHowItEnded) {
  CommandAdaptor a = adaptor("echo ran >>" + in("ran") + "; exit 7");
  EXPECT_EQ(a.observe().job, JobState::absent);
  a.start({.number = 1, .excluded = {"n1", "n2"}});
  a.start({.number = 1, .excluded = {"n1", "n2"}});
  ASSERT_TRUE(looks(a, ended));
  EXPECT_EQ(a.observe().exit_code, 7);
  EXPECT_EQ(read("ran"), "ran\n");
  EXPECT_NE(read("starts").find(" n1,n2 --nodes=2\n"), std::string::npos) << read("starts");
  EXPECT_EQ(read("excluded"), "n1\nn2\n");
  // Submitted again, by whatever mistake, the script does nothing.
  EXPECT_EQ(run_process({"/bin/sh", in("run/guard/job-1.sh")}).exit_code, 75);
  EXPECT_EQ(read("ran"), "ran\n");
  a.start({.number = 2, .excluded = {"n1", "n2", "n3"}, .from_step = 40});
  ASSERT_TRUE(looks(a, [](const Observation& o) { return o.start == 2 && ended(o); }));
  EXPECT_EQ(read("excluded"), "n1\nn2\nn3\n") << "each once";
  EXPECT_NE(read("run/guard/job-2.sh").find(" --from 40 "), std::string::npos);
}

TEST_F(Cluster, AStartThatHangsIsFoundByItsName) {
  flag("hang-start");
  CommandAdaptor a = adaptor("echo ran >>" + in("ran") + "; sleep 0.3");
  const double begin = monotonic_seconds();
  a.start({.number = 1});
  EXPECT_LT(monotonic_seconds() - begin, 5);
  CommandAdaptor next = adaptor("echo twice >>" + in("ran"));  // of another guard
  next.start({.number = 1});
  ASSERT_TRUE(looks(next, ended));
  EXPECT_EQ(next.observe().exit_code, 0);
  EXPECT_EQ(read("ran"), "ran\n");
}

TEST_F(Cluster, AGuardThatDiedBetweenIntentionAndAnswerStartsNoSecondJob) {
  CommandAdaptor a = adaptor("echo ran >>" + in("ran") + "; sleep 0.3");
  a.start({.number = 1});
  fs::remove(in("run/guard/job.json"));  // as where it was killed before it heard the id
  CommandAdaptor next = adaptor("echo twice >>" + in("ran"));
  next.start({.number = 1});
  ASSERT_TRUE(looks(next, ended));
  EXPECT_EQ(read("ran"), "ran\n");
  const std::string starts = read("starts");
  EXPECT_EQ(std::count(starts.begin(), starts.end(), '\n'), 1);
}

TEST_F(Cluster, AStartWithoutAnAnswerIsAnErrorThatNamesTheJob) {
  flag("hang-start"), flag("hang-find");
  CommandAdaptor a = adaptor("true");
  try {
    a.start({.number = 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("see whether a job 'ingot-"), std::string::npos) << e.what();
  }
  fs::remove(in("hang-find"));
  a.start({.number = 1});  // a person answered
  EXPECT_TRUE(looks(a, ended));
}

TEST_F(Cluster, ARefusedStartIsAnErrorAndIsTriedAgain) {
  flag("refuse");
  CommandAdaptor a = adaptor("true");
  try {
    a.start({.number = 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no such partition"), std::string::npos) << e.what();
  }
  fs::remove(in("refuse"));
  a.start({.number = 1});
  EXPECT_TRUE(looks(a, ended));
}

TEST_F(Cluster, WhatHangsLiesOrMakesNoSenseIsToldOnceAndNotBelieved) {
  // A job that writes its status as a run does.
  CommandAdaptor a = adaptor(
      "mkdir -p " + in("run/status") + "; i=0; until [ -f " + in("go") + " ]; do i=$((i + 1)); echo " +
      R"("{\"format\": 1, \"start\": 1, \"rank\": 0, \"host\": \"n1\", \"start_step\": 0, \"step\": $i}" >)" +
      in("s") + "; mv " + in("s") + " " + in("run/status/rank-0.json") + "; sleep 0.2; done");
  a.start({.number = 1});
  ASSERT_TRUE(looks(a, [](const Observation& o) { return o.job == JobState::running; }));
  const auto lives_for = [&](double seconds) {
    const double begin = monotonic_seconds();
    while (monotonic_seconds() - begin < seconds) {
      EXPECT_EQ(a.observe().job, JobState::running);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  const int64_t before = alerts();
  write_text(in("say"), "ENDED\n");
  lives_for(8);
  EXPECT_EQ(alerts(), before + 1) << read("run/guard/alerts.jsonl");
  EXPECT_NE(read("run/guard/alerts.jsonl").find("its ranks still write"), std::string::npos);
  fs::remove(in("say"));
  lives_for(1);
  write_text(in("say"), "BANANA\n");
  lives_for(1);
  EXPECT_EQ(alerts(), before + 2) << read("run/guard/alerts.jsonl");
  fs::remove(in("say"));
  lives_for(1);
  flag("hang-state");
  lives_for(3);
  EXPECT_EQ(alerts(), before + 3) << read("run/guard/alerts.jsonl");
  flag("go");
  ASSERT_TRUE(looks(a, ended)) << "the script's own word counts, though 'state' hangs";
}

TEST_F(Cluster, NodesThatAreDownAreLostAndOthersAreNot) {
  write_text(in("nodes"), "n1 idle\nn2 down\nn9 down\n");
  CommandAdaptor a = adaptor("sleep 1");
  a.start({.number = 1});
  fs::create_directories(in("run/status"));
  for (int r = 0; r < 2; ++r)
    write_text(
        in(fmt::format("run/status/rank-{}.json", r)),
        fmt::format(R"({{"format": 1, "start": 1, "rank": {}, "host": "n{}", "start_step": 0, "step": 3}})",
                    r, r + 1));
  ASSERT_TRUE(looks(a, [](const Observation& o) { return o.nodes.size() == 4; }));
  for (const NodeReport& n : a.observe().nodes) EXPECT_EQ(n.is_down, n.name == "n2" && n.rank < 0) << n.name;
  looks(a, ended);
}

TEST_F(Cluster, SuspectsAreTestedAndThoseThatFailOrHangAreNamed) {
  flag("bad-n2"), flag("slow-n3");
  CommandAdaptor a = adaptor("true");
  std::optional<std::vector<std::string>> failing;
  const double begin = monotonic_seconds();
  while (!failing && monotonic_seconds() - begin < 10) failing = a.burn_in({"n1", "n2", "n3"});
  ASSERT_TRUE(failing);
  EXPECT_EQ(*failing, (std::vector<std::string>{"n2", "n3"}));
}

TEST_F(Cluster, ATestThatDidNotRunBlamesNoNode) {
  flag("gone-n2");
  CommandAdaptor a = adaptor("true");
  const double begin = monotonic_seconds();
  std::string error;
  while (error.empty() && monotonic_seconds() - begin < 10) try {
      if (a.burn_in({"n1", "n2"})) break;
    } catch (const Error& e) {
      error = e.what();
    }
  EXPECT_NE(error.find("the burn-in of 'n2' did not run: exit code 1: no such account"), std::string::npos)
      << error;
}

TEST_F(Cluster, AJobIsAskedToEndThroughItsScriptAndThenKilled) {
  const std::string asked = "trap 'exit 130' USR1; touch " + in("up") + "; while :; do sleep 0.05; done";
  CommandAdaptor a = adaptor(asked);
  a.start({.number = 1});
  ASSERT_TRUE(looks(a, [&](const Observation&) { return fs::exists(in("up")); }));
  a.stop(false);
  ASSERT_TRUE(looks(a, ended));
  EXPECT_EQ(a.observe().exit_code, 130);
  fs::remove(in("up"));
  CommandAdaptor deaf = adaptor("trap '' USR1 TERM; touch " + in("up") + "; while [ -f " + in("up") +
                                " ]; do sleep 0.05; done");
  deaf.start({.number = 2});
  ASSERT_TRUE(looks(deaf, [&](const Observation&) { return fs::exists(in("up")); }));
  deaf.stop(false);
  EXPECT_NE(deaf.observe().job, JobState::ended);
  flag("deaf");
  deaf.stop(true);  // this command fails, and is repeated
  EXPECT_TRUE(looks(deaf, ended));
  EXPECT_FALSE(fs::exists(in("deaf")));
  fs::remove(in("up"));  // ends its child, which a cluster would have killed too
}

TEST_F(Cluster, AnswersAreGoodForAWhile) {
  write_text(in("nodes"), "n1 down\n");
  CommandAdaptor a = adaptor("until [ -f " + in("go") + " ]; do sleep 0.05; done");
  a.start({.number = 1});
  fs::create_directories(in("run/status"));
  write_text(in("run/status/rank-0.json"),
             R"({"format": 1, "start": 1, "rank": 0, "host": "n1", "start_step": 0, "step": 3})");
  const auto down = [](const Observation& o) {
    return std::any_of(o.nodes.begin(), o.nodes.end(), [](const NodeReport& n) { return n.is_down; });
  };
  ASSERT_TRUE(looks(a, down));
  fs::remove(in("nodes"));  // the command fails from now on
  EXPECT_TRUE(looks(a, [&](const Observation& o) { return !down(o); }));
  flag("go");
  EXPECT_TRUE(looks(a, ended));
}

TEST_F(Cluster, AWordThatIsNoStateIsNotTheEmptyOne) {
  std::string toml = text();
  toml.replace(toml.find("ended = [\"ENDED\"]"), 17, "ended = [\"ENDED\", \"\"]");
  CommandAdaptor a(in("run"), {"sh", "-c", "until [ -f " + in("go") + " ]; do sleep 0.05; done"},
                   read_config<CommandTemplates>(parse_toml(toml, "cluster.toml")), {}, 0);
  write_text(in("say"), "(null)\n");
  a.start({.number = 1});
  const double begin = monotonic_seconds();
  while (monotonic_seconds() - begin < 7) EXPECT_NE(a.observe().job, JobState::ended);
  flag("go");
  EXPECT_TRUE(looks(a, ended));
}

TEST_F(Cluster, WhatAStartCannotDoIsRefused) {
  CommandAdaptor a = adaptor("true");
  EXPECT_THROW(a.start({.number = 1, .excluded = {"-oProxyCommand=x"}}), Error);
  EXPECT_THROW(a.start({.number = 1, .fewer = true}), Error);
  EXPECT_THROW(a.burn_in({"n1;reboot"}), Error);
  EXPECT_EQ(read("starts"), "");
}

TEST_F(Cluster, TemplatesAreChecked) {
  const auto refusal = [&](const std::string& toml) -> std::string {
    try {
      read_config<CommandTemplates>(parse_toml(toml, "cluster.toml"));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(text()), "");
  EXPECT_EQ(refusal(read_text(INGOT_SOURCE_DIR "/recipes/guard-slurm.toml")), "");
  EXPECT_NE(refusal(text("start2 = []")), "");
  std::string odd = text();
  odd.replace(odd.find("{name}"), 6, "{nmae}");
  EXPECT_NE(refusal(odd).find("'start' has no placeholder {nmae}"), std::string::npos) << refusal(odd);
  std::string deaf = text();
  deaf.replace(deaf.find("\"kill\", \"{id}\""), 14, "\"kill\"");
  EXPECT_NE(refusal(deaf).find("'kill' says neither {id} nor {name}"), std::string::npos) << refusal(deaf);
  EXPECT_NE(refusal("start = [\"a\", \"{script}\", \"{name}\"]").find("a cluster needs the command 'kill'"),
            std::string::npos);
}

TEST(Expand, FillsWordsAndLeavesOutEmptyOnes) {
  EXPECT_EQ(expand({"sbatch", "--exclude={excluded}", "{options}", "{script}", "{else}"},
                   {{"excluded", ""}, {"script", "a b"}}, {"-N", "2"}),
            (Words{"sbatch", "-N", "2", "a b", "{else}"}));
  EXPECT_EQ(expand({"--exclude={excluded}"}, {{"excluded", "n1,n2"}}, {}), Words{"--exclude=n1,n2"});
}

TEST_F(Cluster, AJobOfThisMachineLivesAsLongAsAnyOfItsProcesses) {
  CommandAdaptor a(in("run"), {"sh", "-c", "sleep 100 & echo $! >" + in("child") + "; exit 7"},
                   this_machine({"true"}), {}, 0);
  a.start({.number = 1});
  ASSERT_TRUE(looks(a, [&](const Observation&) { return fs::exists(in("run/guard/end-1.json")); }));
  const double begin = monotonic_seconds();
  while (monotonic_seconds() - begin < 1.5) EXPECT_NE(a.observe().job, JobState::ended);
  try {
    a.start({.number = 2});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("an earlier start still runs"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(fs::exists(in("run/guard/begun-2")));
  a.stop(false);  // the leader of its session has ended
  ASSERT_TRUE(looks(a, ended));
  EXPECT_EQ(a.observe().exit_code, 7);
  const std::string stat = fmt::format("/proc/{}/stat", std::stoi(read("child")));
  EXPECT_TRUE(!fs::exists(stat) || read_text(stat).find(") Z ") != std::string::npos) << "its child lives";
  a.start({.number = 2});
  ASSERT_TRUE(looks(a, [](const Observation& o) { return o.start == 2 && !ended(o); }));
  a.stop(true);
  EXPECT_TRUE(looks(a, ended));
  EXPECT_EQ(alerts(), 0) << read("run/guard/alerts.jsonl");
}

TEST_F(Cluster, AJobOfThisMachineIsFoundByItsNameAndNeverStartedTwice) {
  const auto adaptor = [&] {
    return std::make_unique<CommandAdaptor>(
        in("run"),
        Words{"sh", "-c",
              "cat; echo ran >>" + in("ran") + "; until [ -f " + in("go") + " ]; do sleep 0.05; done"},
        this_machine({"true"}), Words{}, 0);
  };
  adaptor()->start({.number = 1});
  fs::remove(in("run/guard/job.json"));  // as where the guard was killed before it heard the id
  const auto next = adaptor();
  next->start({.number = 1});
  flag("go");
  ASSERT_TRUE(looks(*next, ended));
  EXPECT_EQ(next->observe().exit_code, 0);
  EXPECT_EQ(read("ran"), "ran\n");
}

TEST_F(Cluster, AMachineThatIsLeftOutIsUsedWhereAPersonSaysSo) {
  CommandAdaptor a(in("run"), {"true"}, this_machine({"true"}), {}, 0);
  const StartRequest request{.number = 1, .excluded = {"n1"}};
  try {
    a.start(request);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'n1' failed its test or was lost"), std::string::npos) << e.what();
  }
  EXPECT_EQ(a.observe().job, JobState::absent);
  a.start(request);
  EXPECT_TRUE(looks(a, ended));
}

TEST_F(Cluster, APreemptedRunIsStartedAgainAndEndsWithItsBits) {
  write_text(in("text.txt"), tiny_text(4000));
  for (const char* run : {"whole", "run"})
    write_text(in(std::string(run) + ".toml"), keeping_all(tiny_recipe(in(run), in("data"), in("text.txt"))));
  ASSERT_EQ(run_process({INGOT_BINARY, "run", in("whole.toml")}).exit_code, 0);
  write_text(in("nodes"), "");
  write_text(in("cluster.toml"), text());
  // In its first start the job is asked to end after a checkpoint, as a pre-empted one is (nice: the script
  // gets a core before the run does, which ends within a second).
  write_text(in("job.sh"), fmt::format(R"([ $INGOT_GUARD_START = 1 ] || exec {0} run {1}/run.toml
nice {0} run {1}/run.toml & pid=$!
until [ -f {1}/run/checkpoints/step-00000008/manifest.json ]; do sleep 0.01; done
kill -TERM $pid; wait $pid)",
                                       INGOT_BINARY, folder_.path()));
  write_text(in("job.toml"),
             fmt::format("run = \"{0}/run\"\nrules = \"{1}/recipes/guard-rules.toml\"\npoll = 0.02\n"
                         "cluster = \"{0}/cluster.toml\"\ncommand = [\"sh\", \"{0}/job.sh\"]\n",
                         folder_.path(), INGOT_SOURCE_DIR));
  EXPECT_EQ(run_process({INGOT_BINARY, "guard", "check", in("job.toml")}).exit_code, 0);
  const ProcessResult r = run_process({INGOT_BINARY, "guard", in("job.toml")});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(difference(in("whole"), in("run")), "");
  std::vector<std::string> decided;
  for (const Entry& e : FileStore(real_file_system(), in("run/guard")).entries())
    if (e.event == guard::Event::decided) decided.push_back(e.rule);
  EXPECT_EQ(decided, (std::vector<std::string>{"first start", "preempted"})) << r.output;
}

}  // namespace ingot::test::command_test
