// The shipped rules against the simulated cluster: every kind of fault alone in each phase and in pairs,
// goodput against renewal theory, the 9,600 devices, and a guard that dies between any two journal entries.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "base/error.h"
#include "guard/guard.h"
#include "support/long_tests.h"
#include "testbed/scenario_run.h"

namespace ingot::test::simulate_test {

using namespace guard;

const std::vector<Rule>& shipped() {
  static const std::vector<Rule> rules = load_rules(INGOT_SOURCE_DIR "/recipes/guard-rules.toml");
  return rules;
}

std::string lines(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& s : list) text += s + "\n";
  return text;
}

TEST(Simulate, FirstDecisionIsRightForEveryFaultInEveryPhase) {
  SuiteResult r;
  for (const Scenario& s : fault_suite().singles) r.add(run_scenario(s, shipped(), GuardKind::rules), true);
  EXPECT_GE(r.singles, 100);
  EXPECT_EQ(r.right_singles, r.singles) << lines(r.wrong);
  EXPECT_EQ(lines(r.problems), "");
}

TEST(Simulate, FirstDecisionIsRightForPairs) {
  SuiteResult r;
  for (const Scenario& s : fault_suite().doubles) r.add(run_scenario(s, shipped(), GuardKind::rules), false);
  EXPECT_GE(r.doubles, 500);
  EXPECT_GE(static_cast<double>(r.right_doubles), 0.95 * static_cast<double>(r.doubles - r.asked_doubles))
      << lines(r.wrong);
  // Else a person is asked; of a few pairs the fault that matters more is decided, whose start mends both.
  EXPECT_GE(static_cast<double>(r.right_doubles + r.asked_doubles), 0.98 * static_cast<double>(r.doubles))
      << lines(r.wrong);
  EXPECT_EQ(lines(r.problems), "");
}

TEST(Simulate, KeepsNineThousandDevicesBusy) {
  const Scenario s = load_config<Scenario>(INGOT_SOURCE_DIR "/recipes/guard-9600.toml");
  EXPECT_EQ(s.nodes * s.devices, 9600);
  EXPECT_EQ(s.device_hours_per_fault, 50'700);
  EXPECT_GT(static_cast<double>(s.nodes) * s.hours / (24 * 365.25), 390);  // node-years
  const Outcome rules = run_scenario(s, shipped(), GuardKind::rules);
  const Outcome restarts = run_scenario(s, shipped(), GuardKind::restarts);
  std::printf("goodput: %.2f %% with the rules, %.2f %% with restarts after timeouts\n",
              100 * rules.books.goodput(), 100 * restarts.books.goodput());
  EXPECT_GE(rules.books.goodput(), 0.97);
  EXPECT_LE(restarts.books.goodput(), 0.88);
  EXPECT_EQ(lines(rules.problems), "");
  // What the books call kept is what the job has: within a checkpoint interval.
  EXPECT_NEAR(static_cast<double>(rules.books.of_ms(Cause::kept)) / 1000, rules.trained_seconds,
              1e-3 * rules.trained_seconds);
}

/// INGOT_LONG_TESTS=1: ten thousand node-years, in a minute of one core.
TEST(Simulate, YearsOfEveryKindOfFault) {
  const int64_t seeds = long_tests() ? 10 : 1;
  double node_years = 0;
  int64_t faults = 0;
  const std::clock_t begin = std::clock();
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    Scenario s{.name = fmt::format("years {}", seed),
               .nodes = 1000,
               .spares = 40,
               .seed = seed,
               .hours = long_tests() ? 8770.0 : 877.0};
    s.device_hours_per_fault = 40'000;
    s.nodes_per_day = 100;
    for (const auto& kind : enum_names(FaultKind{})) s.shares.push_back({kind.value, 1});
    const Outcome o = run_scenario(s, shipped(), GuardKind::rules);
    EXPECT_EQ(lines(o.problems), "") << s.name;
    node_years += static_cast<double>(s.nodes) * s.hours / (24 * 365.25);
    faults += static_cast<int64_t>(o.faults.size());
    std::printf("%s: %zu faults, %lld questions, goodput %.2f %%\n", s.name.c_str(), o.faults.size(),
                static_cast<long long>(o.questions), 100 * o.books.goodput());
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%.0f node-years in %.1f s of processor time\n", node_years, seconds);
  if (long_tests()) {
    EXPECT_LT(seconds, 60);
  }
  EXPECT_GE(node_years, long_tests() ? 10'000 : 100);
  EXPECT_GT(faults, long_tests() ? 10'000 : 100);
}

/// The share of time that is kept: faults that end the job come with a rate while it starts or trains, and
/// cost a start.
double renewal_goodput(double mean_between, double every, double pause, double start) {
  const double rate = 1 / mean_between;
  // A start succeeds when no fault comes meanwhile; each that fails costs its time.
  const double restart = std::expm1(rate * start) * mean_between;
  return every / (std::expm1(rate * (every + pause)) * (mean_between + restart));
}

TEST(Simulate, GoodputEqualsRenewalTheory) {
  const std::vector<Rule> rules = parse_rules(R"([[rules]]
name = "rank lost"
when = 'job == "ended"'
act = ["restart"]
limit = "100000 in 1h")",
                                              "test");
  for (const auto& [hours, every, pause] :
       {std::tuple(2.0, 300.0, 5.0), std::tuple(1.0, 600.0, 20.0), std::tuple(8.0, 1800.0, 10.0)}) {
    Scenario s{.name = "renewal", .nodes = 16, .hours = 20'000 * hours};
    s.step_seconds = 1;
    s.checkpoint_every = every;
    s.checkpoint_pause = pause;
    s.device_hours_per_fault = hours * 16 * 8;
    s.idle_restarts = 1'000'000;
    s.shares = {{FaultKind::kill, 1}};
    const Outcome o = run_scenario(s, rules, GuardKind::rules);
    EXPECT_GT(o.faults.size(), 15'000U);
    const double expected = renewal_goodput(hours * 3600, every, pause, s.start_seconds + s.load_seconds);
    EXPECT_NEAR(o.books.goodput(), expected, 0.005 * expected) << hours;
    EXPECT_EQ(lines(o.problems), "");
  }
}

/// Fails before or after an entry is on disk: the guard dies there.
struct GuardDied {};
class DyingStore final : public Store {
 public:
  explicit DyingStore(int64_t dies_at, bool before) : dies_at_(dies_at), before_(before) {}
  std::vector<Entry> entries() override { return entries_; }
  void append(const Entry& entry) override {
    const bool dies = ++count_ == dies_at_;
    if (dies && before_) throw GuardDied();
    entries_.push_back(Entry::parse(entry.json()));
    if (dies) throw GuardDied();
  }
  void keep(const Books& books) override { books_ = Books::parse(books.json()); }
  std::optional<Books> books() override { return books_; }
  int64_t count() const { return count_; }

 private:
  const int64_t dies_at_;
  const bool before_;
  int64_t count_ = 0;
  std::vector<Entry> entries_;
  std::optional<Books> books_;
};

TEST(Guard, GoesOnWhereverItWasKilled) {
  for (const FaultKind kind :
       {FaultKind::memory_error, FaultKind::hang, FaultKind::corrupt_often, FaultKind::configuration}) {
    int64_t entries = 1000;
    for (int64_t dies = 1; dies <= entries; ++dies)
      for (const bool before : {false, true}) {
        Scenario s{.name = "killed guard", .hours = 2};
        s.faults = {{kind, 1000, 2}};
        SimulatedCluster cluster(s, 0);
        DyingStore store(dies, before);
        Scope scope{.nodes_per_day = 8};
        for (const auto& a : enum_names(Action{})) scope.alone.push_back(a.value);
        std::unique_ptr<Guard> guard;
        while (cluster.now_ms() < 7'200'000) {
          try {
            if (!guard) guard = std::make_unique<Guard>(GuardOptions{shipped(), scope, 30}, cluster, store);
            guard->tick();
          } catch (const GuardDied&) {
            guard.reset();
          }
          cluster.advance_to(cluster.now_ms() + 5000);
        }
        SCOPED_TRACE(
            fmt::format("{} killed at entry {} {}", name_of(kind), dies, before ? "before" : "after"));
        ASSERT_EQ(lines(cluster.violations()), "");
        ASSERT_TRUE(guard != nullptr);
        ASSERT_GT(cluster.trained_seconds(), 4500);
        int64_t sum = 0;
        for (const auto& c : enum_names(Cause{})) sum += guard->books().of_ms(c.value);
        ASSERT_EQ(sum, guard->books().total_ms());
        if (dies == 1 && before) entries = store.count() + 2;
      }
    EXPECT_LT(entries, 60);
  }
}

}  // namespace ingot::test::simulate_test
