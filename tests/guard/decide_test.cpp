// Decisions: repeats, limits, scope, what is told once; books that add up whatever happens.
#include "guard/decide.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "guard/books.h"
#include "guard/fact_tracker.h"
#include "guard/journal.h"

namespace ingot::test::decide_test {

using namespace guard;

std::vector<Rule> rules(const std::string& text) {
  return parse_rules(text, "test");
}

/// Asks again and again, as a guard does: matches and past carry over.
struct Asking {
  std::vector<Rule> list;
  Scope scope = {};
  std::vector<PastMatch> past = {};
  std::set<std::string> matching = {};
  /// `nodes` are suspected of memory errors.
  Judgement ask(double now, const Facts& facts, const std::vector<std::string>& nodes = {}) {
    Suspects suspects;
    for (const std::string& n : nodes) suspects[n] = {Fact::memory_errors};
    Judgement j = decide(list, {now, facts, suspects, matching}, past, scope);
    matching = j.matching;
    past.insert(past.end(), j.noted.begin(), j.noted.end());
    for (const Decision& d : j.alerts) past.push_back({d.rule, now, d.nodes, false});
    if (j.decision) past.push_back({j.decision->rule, now, j.decision->nodes, true});
    return j;
  }
};

Facts silent(double seconds) {
  Facts f;
  f.set(Fact::job, "running");
  f.set(Fact::silence, seconds);
  return f;
}

TEST(Decide, TakesTheFirstRuleThatHolds) {
  Asking a{rules(R"([[rules]]
name = "long"
when = 'silence > 100s'
act = ["stop", "restart"]
limit = "9 in 1h"
[[rules]]
name = "short"
when = 'silence > 10s'
act = ["wait"])")};
  EXPECT_FALSE(a.ask(0, silent(5)).decision);
  const Judgement waits = a.ask(1, silent(11));
  EXPECT_EQ(waits.decision->rule, "short");
  EXPECT_TRUE(waits.waits);
  EXPECT_FALSE(a.ask(2, silent(12)).decision) << "it waits already";
  EXPECT_EQ(a.ask(3, silent(101)).decision->rule, "long");
  EXPECT_FALSE(a.ask(4, silent(0)).decision);
  EXPECT_EQ(a.ask(5, silent(11)).decision->rule, "short") << "a new stall";
}

TEST(Decide, ProbableSignsActAfterRepeatsInTheWindow) {
  Asking a{rules(R"([[rules]]
name = "link"
when = 'link_errors > 0'
sure = "probable"
repeats = "2 in 5min"
act = ["stop", "restart"]
limit = "9 in 1h")")};
  Facts bad;
  bad.set(Fact::link_errors, 1);
  EXPECT_FALSE(a.ask(0, bad, {"n1"}).decision);
  EXPECT_FALSE(a.ask(1, bad, {"n1"}).decision) << "still the same sign";
  EXPECT_FALSE(a.ask(2, {}).decision);
  EXPECT_FALSE(a.ask(400, bad, {"n1"}).decision) << "the first is older than the window";
  EXPECT_FALSE(a.ask(401, {}).decision);
  EXPECT_TRUE(a.ask(500, bad, {"n1"}).decision);
}

TEST(Decide, AsksBeyondLimitScopeAndBudgets) {
  const std::vector<Rule> list = rules(R"([[rules]]
name = "a"
when = 'memory_errors > 0'
act = ["stop", "exclude", "restart"]
limit = "1 in 24h per node")");
  Facts bad;
  bad.set(Fact::memory_errors, 1);
  Asking a{list};
  EXPECT_FALSE(a.ask(0, bad, {"n1"}).decision->asks());
  EXPECT_FALSE(a.ask(10, bad, {"n2"}).decision->asks()) << "another node";
  EXPECT_TRUE(a.ask(20, bad, {"n1"}).decision->asks()) << "the same node again";
  EXPECT_FALSE(a.ask(86'500, bad, {"n1"}).decision->asks()) << "the next day";
  Asking many{list};
  EXPECT_TRUE(many.ask(0, bad, {"n1", "n2", "n3"}).decision->asks()) << "three nodes, scope allows two a day";
  Asking narrow{list};
  std::erase(narrow.scope.alone, Action::exclude);
  const Decision d = *narrow.ask(0, bad, {"n1"}).decision;
  EXPECT_TRUE(d.asks());
  EXPECT_NE(d.reason.find("'exclude' is outside what it may do alone"), std::string::npos) << d.reason;
  bad.set(Fact::idle_restarts, 3);
  EXPECT_TRUE(Asking{list}.ask(0, bad, {"n1"}).decision->asks()) << "a crash loop";
}

TEST(Decide, ASuspectAnswersForItsOwnSign) {
  const std::vector<Rule> list = rules(R"([[rules]]
name = "memory"
when = 'memory_errors > 0'
act = ["exclude", "restart"]
limit = "9 in 24h"
[[rules]]
name = "error"
when = 'log("CQE")'
act = ["burn_in", "exclude_failing", "restart"]
limit = "9 in 24h")");
  const Suspects suspects{{"broken", {Fact::memory_errors, Fact::throttled}}, {"warm", {Fact::throttled}}};
  Facts facts;
  facts.add_log("CQE with status 12");
  using Nodes = std::vector<std::string>;
  EXPECT_EQ(decide(list, {0, facts, suspects, {}}, {}, Scope()).decision->nodes, (Nodes{"broken", "warm"}))
      << "the sign names no node";
  facts.set(Fact::memory_errors, 1);
  EXPECT_EQ(decide(list, {0, facts, suspects, {}}, {}, Scope()).decision->nodes, Nodes{"broken"});
}

TEST(Decide, AlertsOnceAndLetsLaterRulesDecide) {
  Asking a{rules(R"([[rules]]
name = "slow"
when = 'throughput < 90%'
act = ["alert"]
[[rules]]
name = "ended"
when = 'job == "ended"'
act = ["restart"]
limit = "9 in 1h")")};
  Facts slow;
  slow.set(Fact::throughput, 0.8);
  EXPECT_EQ(a.ask(0, slow).alerts.size(), 1U);
  EXPECT_EQ(a.ask(1, slow).alerts.size(), 0U);
  slow.set(Fact::job, "ended");
  EXPECT_EQ(a.ask(2, slow).decision->rule, "ended");
  EXPECT_EQ(a.ask(3, {}).alerts.size(), 0U);
  EXPECT_EQ(a.ask(4, slow).alerts.size(), 1U) << "a new deviation";
}

Observation running(double now, int64_t step) {
  Observation o;
  o.now = now;
  o.wall = 1.7e9 + now;
  o.job = JobState::running;
  o.start = 1;
  o.first.start_step = 0;
  o.first.step = step;
  o.first.step_seconds = 1;
  return o;
}

TEST(FactTracker, NamesTheSlowNodeAfterItsWindows) {
  FactTracker t;
  Situation s;
  for (int i = 0; i < 20; ++i) {
    Observation o = running(i, i);
    for (const char* name : {"n0", "n1", "n2", "n3"}) o.nodes.push_back({.name = name, .busy = 0.9});
    if (i >= 10) o.nodes[2].busy = 1.8;
    s = t.look(o);
    EXPECT_EQ(s.facts[Fact::slow_windows], i < 10 ? 0 : i - 9);
    EXPECT_EQ(s.suspects.empty(), i < 11);
  }
  EXPECT_EQ(s.suspects, (Suspects{{"n2", {Fact::slow_windows}}}));
  EXPECT_DOUBLE_EQ(s.facts[Fact::slowest], 2);
}

TEST(FactTracker, SurvivesNonsense) {
  FactTracker t;
  const Random random(3, RandomPurpose::test);
  const double odd[] = {0, -1, 1e300, std::nan(""), INFINITY, -INFINITY, 5};
  for (uint64_t i = 0; i < 2000; ++i) {
    const auto pick = [&](uint64_t k) { return odd[random.below(i * 16 + k, std::size(odd))]; };
    Observation o = running(static_cast<double>(i), static_cast<int64_t>(random.below(i, 50)) - 10);
    o.wall = pick(1);
    o.first.step_seconds = pick(2);
    o.first.data_wait = pick(3);
    o.checkpoint_age = pick(4);
    o.disk_free = pick(5);
    o.nodes = {{.name = "a", .age = pick(6), .busy = pick(7), .memory_errors = -5},
               {.name = "a", .busy = pick(8)}};
    const Situation s = t.look(o);
    for (size_t f = 0; f < kFacts; ++f) {
      const FactInfo& info = info_of(static_cast<Fact>(f));
      if (info.values.empty()) {
        EXPECT_GE(s.facts[static_cast<Fact>(f)], info.least) << info.name;
        EXPECT_LE(s.facts[static_cast<Fact>(f)], info.most) << info.name;
      }
    }
  }
}

TEST(FactTracker, CountsStartsThatReachNoNewStep) {
  FactTracker t;
  const auto look = [&](double now, int64_t start, int64_t step, JobState job) {
    Observation o = running(now, step);
    o.start = start;
    o.job = job;
    return t.look(o).facts[Fact::idle_restarts];
  };
  EXPECT_EQ(look(0, 1, 10, JobState::running), 0);
  EXPECT_EQ(look(1, 1, 10, JobState::ended), 0);
  EXPECT_EQ(look(2, 2, 8, JobState::running), 1);
  EXPECT_EQ(look(3, 2, 10, JobState::running), 1);
  EXPECT_EQ(look(4, 3, 8, JobState::running), 2);
  EXPECT_EQ(look(5, 3, 11, JobState::running), 0);
}

int64_t sum(const Books& b) {
  int64_t total = 0;
  for (const auto& c : enum_names(Cause{})) total += b.of_ms(c.value);
  return total;
}

TEST(Books, AddUpExactlyWhateverHappens) {
  const Random random(5, RandomPurpose::test);
  Books b(1000);
  int64_t now = 1000, step = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    now += static_cast<int64_t>(random.below(4 * i, 2000)) - 100;  // a clock that is set back books nothing
    const auto cause = static_cast<Cause>(2 + random.below(4 * i + 1, enum_count<Cause> - 2));
    switch (random.below(4 * i + 2, 8)) {
      case 0:
        b.spend(cause, now);
        break;
      case 1:
        step = std::max<int64_t>(0, step - static_cast<int64_t>(random.below(4 * i + 3, 40)));
        b.fall_back(step);
        break;
      default:
        step += static_cast<int64_t>(random.below(4 * i + 3, 5));
        b.train(now, step);
    }
    ASSERT_EQ(sum(b), b.total_ms());
    ASSERT_GE(b.of_ms(Cause::kept), 0);
  }
  const Books read = Books::parse(b.json());
  EXPECT_EQ(read.json(), b.json());
}

TEST(Books, TrainingAfterTheCheckpointIsLost) {
  Books b;
  b.train(100'000, 100);
  b.spend(Cause::detection, 130'000);
  b.fall_back(70);
  b.spend(Cause::start, 150'000);
  b.train(230'000, 150);
  EXPECT_EQ(b.of_ms(Cause::kept), 150'000);
  EXPECT_EQ(b.of_ms(Cause::lost), 30'000);
  EXPECT_EQ(b.lost_steps(), 30);
  EXPECT_DOUBLE_EQ(b.goodput(), 150.0 / 230);
  EXPECT_THROW(Books::parse("{}"), Error);
  std::string cooked = b.json();
  cooked.replace(cooked.find("150000"), 6, "150001");
  EXPECT_THROW(Books::parse(cooked), Error);
}

TEST(Journal, EntriesReadBack) {
  Entry e{.number = 3,
          .time = 1.5,
          .event = guard::Event::decided,
          .rule = "hang",
          .reason = "silence 90",
          .text = "x"};
  e.actions = {Action::stop, Action::restart};
  e.nodes = {"n1"};
  e.value = 7;
  e.situation = Situation{1.5, silent(90), {{"n1", {Fact::link_errors, Fact::silence}}}, {"flap"}};
  EXPECT_EQ(Entry::parse(e.json()).json(), e.json());
  EXPECT_THROW(Entry::parse("{\"n\": 1"), Error);
  EXPECT_THROW(Entry::parse("{\"n\": 1, \"time\": 2, \"event\": \"dance\"}"), Error);
}

}  // namespace ingot::test::decide_test
