// What a guard makes of what it sees: ranks of one host are one node, a job that ended says nothing more, a
// look is no window, and a job that cannot be ended is a person's.
#include "guard/guard.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "guard/fact_tracker.h"
#include "guard/run_reader.h"
#include "support/support.h"

namespace ingot::test::guard_test {

using namespace guard;

const std::vector<Rule>& shipped() {
  static const std::vector<Rule> rules = load_rules(INGOT_SOURCE_DIR "/recipes/guard-rules.toml");
  return rules;
}

Scope scope() {
  Scope s{.nodes_per_day = 2};
  for (const auto& a : enum_names(Action{})) s.alone.push_back(a.value);
  return s;
}

/// A run folder in which ranks of hosts say what the test wants.
class Ranks {
 public:
  Ranks() { std::filesystem::create_directories(folder_ / "status"); }
  void say(int rank, const std::string& host, int64_t step, const std::string& more = "") {
    write_text(folder_ / fmt::format("status/rank-{}.json", rank),
               fmt::format(R"({{"format": 1, "start": 1, "rank": {}, "host": "{}", "start_step": 0, )"
                           R"("step": {}, "step_seconds": 1{}}})",
                           rank, host, step, more));
  }
  void save(int64_t step) {
    const std::string checkpoint = folder_ / fmt::format("checkpoints/step-{:08}", step);
    std::filesystem::create_directories(checkpoint);
    write_text(checkpoint + "/manifest.json", "{}");
  }
  Observation read(double now, JobState job) {
    Observation o;
    o.now = now;
    o.wall = 1.7e9 + now;
    o.job = job;
    o.start = 1;
    reader_.read(o, 1, folder_ / "none.log");
    return o;
  }

 private:
  TempDir folder_;
  RunReader reader_{folder_.path()};
};

TEST(Look, RanksOfAJobThatEndedAreNotLost) {
  Ranks ranks;
  FactTracker t;
  for (int r = 0; r < 4; ++r) ranks.say(r, "h", 5);
  t.look(ranks.read(10, JobState::running));
  t.look(ranks.read(11, JobState::ended));
  Observation o = ranks.read(60, JobState::ended);
  o.exit_code = 137;
  o.failure = FailureReport{.kind = FailureKind::lost};
  const Situation s = t.look(o);
  EXPECT_EQ(s.facts[Fact::lost_nodes], 0);
  EXPECT_EQ(decide(shipped(), s, {}, scope()).decision->rule, "rank lost");
}

TEST(Look, ANodeThatFellSilentBeforeTheEndStaysLost) {
  Ranks ranks;
  FactTracker t;
  ranks.say(0, "a", 5);
  ranks.say(1, "b", 5);
  t.look(ranks.read(10, JobState::running));
  for (int now = 11; now < 50; ++now) {
    ranks.say(0, "a", now);
    t.look(ranks.read(now, JobState::running));
  }
  const Situation s = t.look(ranks.read(50, JobState::ended));
  EXPECT_EQ(s.facts[Fact::lost_nodes], 1);
  EXPECT_EQ(s.suspects, (Suspects{{"b", {Fact::lost_nodes}}}));
}

TEST(Look, RanksOfOneHostAreOneNode) {
  Ranks ranks;
  FactTracker t;
  for (int r = 0; r < 16; ++r) ranks.say(r, r < 8 ? "good" : "bad", 5);
  t.look(ranks.read(10, JobState::running));
  for (int r = 0; r < 8; ++r) ranks.say(r, "good", 6);
  const Situation s = t.look(ranks.read(40, JobState::running));
  EXPECT_EQ(s.facts[Fact::lost_nodes], 1);
  EXPECT_EQ(s.facts[Fact::nodes], 1);
  for (int r = 0; r < 8; ++r) ranks.say(r, "good", 6, R"(, "part": "update")");
  t.look(ranks.read(55, JobState::running));
  const auto d = decide(shipped(), t.look(ranks.read(61, JobState::running)), {}, scope()).decision;
  ASSERT_TRUE(d);
  EXPECT_EQ(d->rule, "node lost");
  EXPECT_EQ(d->nodes, std::vector<std::string>{"bad"});
  EXPECT_FALSE(d->asks()) << "eight ranks are one node of the two that a day allows: " << d->reason;
}

TEST(Look, OneSilentRankOfANodeThatAnswersIsLateNotLost) {
  Ranks ranks;
  FactTracker t;
  for (int r = 0; r < 4; ++r) ranks.say(r, "h", 5);
  t.look(ranks.read(10, JobState::running));
  for (int r = 0; r < 3; ++r) ranks.say(r, "h", 6);
  const Situation s = t.look(ranks.read(40, JobState::running));
  EXPECT_EQ(s.facts[Fact::lost_nodes], 0);
  EXPECT_EQ(s.suspects, (Suspects{{"h", {Fact::silence}}}));
  EXPECT_EQ(s.ranks, std::set<std::string>{"rank 3 on h"});
}

TEST(Look, WindowsAreTheRunsNotTheGuards) {
  Ranks ranks;
  FactTracker t;
  double now = 0;
  const auto look_at = [&](int64_t step, int looks) {
    Situation s;
    for (int r = 0; r < 4; ++r)
      ranks.say(r, "h", step, fmt::format(R"(, "busy_seconds": {})", r == 2 ? 2 : 1));
    for (int i = 0; i < looks; ++i) s = t.look(ranks.read(now += 0.1, JobState::running));
    return s;
  };
  EXPECT_EQ(look_at(1, 40).facts[Fact::slow_windows], 1) << "40 looks at one step are one window";
  EXPECT_EQ(look_at(2, 40).facts[Fact::slow_windows], 2);
  look_at(3, 1);
  look_at(4, 7);
  const Situation s = look_at(9, 3);
  EXPECT_EQ(s.facts[Fact::slow_windows], 5);
  EXPECT_EQ(s.suspects, (Suspects{{"h", {Fact::slow_windows}}}));
  EXPECT_EQ(s.ranks, std::set<std::string>{"rank 2 on h"});
  EXPECT_EQ(decide(shipped(), s, {}, scope()).decision->rule, "straggler");
}

TEST(Look, TheAgeOfACheckpointIsInItsOwnIntervals) {
  Ranks ranks;
  const auto age = [&](int64_t step) {
    ranks.say(0, "h", step, R"(, "save_every": 10)");
    return ranks.read(static_cast<double>(step), JobState::running).checkpoint_age;
  };
  EXPECT_DOUBLE_EQ(age(5), 0.5) << "since the start, where there is none";
  ranks.save(10);
  EXPECT_DOUBLE_EQ(age(15), 0.5);
  EXPECT_DOUBLE_EQ(age(45), 3.5);
  FactTracker t;
  const Situation s = t.look(ranks.read(46, JobState::running));
  EXPECT_EQ(decide(shipped(), s, {}, scope()).decision->rule, "checkpoint too old");
  ranks.say(0, "h", 45);
  EXPECT_EQ(ranks.read(47, JobState::running).checkpoint_age, 0) << "a run that makes none";
}

/// A job that does what the test says.
class FakeCluster final : public Adaptor {
 public:
  Observation seen;
  bool dies = true;
  int asked_to_end = 0, killed = 0;
  std::vector<int64_t> started;
  std::vector<std::string> questions;
  std::optional<std::vector<Action>> person;
  const Observation& observe() override { return seen; }
  void start(const StartRequest& r) override {
    started.push_back(r.number);
    seen.start = r.number;
    seen.first.start_step = 0;
    seen.job = JobState::running;
  }
  void stop(bool at_once) override {
    ++(at_once ? killed : asked_to_end);
    if (dies) seen.job = JobState::ended;
  }
  std::optional<std::vector<std::string>> burn_in(const std::vector<std::string>&) override {
    return std::vector<std::string>();
  }
  void save_evidence(int64_t) override {}
  void alert(const std::string&) override {}
  std::optional<std::vector<Action>> ask(int64_t, const std::string& text) override {
    if (questions.empty() || questions.back() != text) questions.push_back(text);
    return person;
  }
};

class MemoryStore final : public Store {
 public:
  std::vector<Entry> list;
  std::vector<Entry> entries() override { return list; }
  void append(const Entry& e) override { list.push_back(Entry::parse(e.json())); }
  void keep(const Books&) override {}
  std::optional<Books> books() override { return std::nullopt; }
};

TEST(Stop, AJobThatOutlivesItsKillIsAPersons) {
  FakeCluster cluster;
  MemoryStore store;
  Guard guard({parse_rules(R"([[rules]]
name = "silent"
when = 'silence > 60s'
act = ["stop", "restart"]
limit = "9 in 24h")",
                           "test"),
               scope(), 30},
              cluster, store);
  const auto run_until = [&](double end) {
    for (; cluster.seen.now < end; cluster.seen.now += 1) guard.tick();
  };
  cluster.seen.first.step = 1;
  run_until(10);
  ASSERT_EQ(cluster.started, std::vector<int64_t>{1});
  cluster.dies = false;
  run_until(400);
  EXPECT_EQ(cluster.killed, 1);
  ASSERT_EQ(cluster.questions.size(), 1U);
  EXPECT_NE(cluster.questions[0].find("still runs 30 s after it was killed"), std::string::npos)
      << cluster.questions[0];
  EXPECT_TRUE(guard.asks());
  const Entry& last = *std::find_if(store.list.rbegin(), store.list.rend(),
                                    [](const Entry& e) { return e.event == guard::Event::decided; });
  EXPECT_EQ(last.actions, std::vector<Action>{Action::ask}) << "it is in the journal";
  EXPECT_EQ(cluster.started.size(), 1U) << "never two jobs on a folder";
  cluster.seen.job = JobState::ended;
  cluster.person = std::vector<Action>{Action::restart};
  run_until(410);
  EXPECT_EQ(cluster.started, (std::vector<int64_t>{1, 2}));
}

}  // namespace ingot::test::guard_test
