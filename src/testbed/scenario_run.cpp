// See scenario_run.h.
#include "testbed/scenario_run.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "guard/guard.h"

namespace ingot::guard {
namespace {

/// Keeps journal and books in memory, across the deaths of guards.
class MemoryStore final : public Store {
 public:
  std::vector<Entry> entries() override { return entries_; }
  void append(const Entry& entry) override {
    entries_.push_back(entry);
    if (entries_.size() > 4000) entries_.erase(entries_.begin(), entries_.begin() + 2000);
  }
  void keep(const Books& books) override { books_ = books; }
  std::optional<Books> books() override { return books_; }

 private:
  std::vector<Entry> entries_;
  std::optional<Books> books_;
};

}  // namespace

Outcome run_scenario(const Scenario& scenario, const std::vector<Rule>& rules, GuardKind kind) {
  SimulatedCluster cluster(scenario, static_cast<uint64_t>(kind == GuardKind::restarts));
  MemoryStore store;
  Outcome outcome{.scenario = scenario};
  const auto new_guard = [&] {
    const Scope scope{.nodes_per_day = scenario.nodes_per_day, .idle_restarts = scenario.idle_restarts};
    auto guard =
        std::make_unique<Guard>(GuardOptions{rules, scope, 30, kind == GuardKind::restarts}, cluster, store);
    guard->on_entry([&](const Entry& e) {
      if (e.event == Event::decided || e.event == Event::alerted) {
        cluster.heard(e.rule, !e.actions.empty() && e.actions.back() == Action::ask);
      }
    });
    return guard;
  };
  std::unique_ptr<Guard> guard = new_guard();
  const auto end = static_cast<int64_t>(scenario.hours * 3'600'000),
             poll = static_cast<int64_t>(scenario.poll * 1000);
  while (cluster.now_ms() < end) {
    guard->tick();
    const bool quiet = !cluster.unusual() && !guard->busy();
    const int64_t next = quiet ? cluster.next_fault_ms() : cluster.now_ms() + poll;
    cluster.advance_to(std::min(std::max(next, cluster.now_ms() + 1), end));
    if (cluster.take_guard_kill()) guard = new_guard();
  }
  guard->tick();
  outcome.books = guard->books();
  outcome.faults = cluster.faults();
  outcome.problems = cluster.violations();
  outcome.trained_seconds = cluster.trained_seconds();
  outcome.questions = cluster.questions();
  int64_t sum = 0;
  for (const auto& c : enum_names(Cause{})) sum += outcome.books.of_ms(c.value);
  if (sum != outcome.books.total_ms())
    outcome.problems.push_back(fmt::format("the books add up to {} of {} ms", sum, outcome.books.total_ms()));
  return outcome;
}

Suite fault_suite() {
  Suite suite;
  const std::vector<std::pair<const char*, double>> phases{
      {"start", 30}, {"load", 100}, {"training", 1000}, {"save", 480.5}, {"restart", 1060}};
  constexpr auto kinds = enum_names(FaultKind{});
  int64_t seed = 1;
  for (const auto& kind : kinds)
    for (const auto& [phase, at] : phases) {
      Scenario s{.name = fmt::format("{} in {}", kind.name, phase), .seed = seed++, .hours = 8};
      if (phase == std::string("restart")) s.faults.push_back({FaultKind::kill, 1000, 3});
      s.faults.push_back({kind.value, at, 5});
      suite.singles.push_back(std::move(s));
    }
  for (size_t a = 0; a < kinds.size(); ++a)
    for (size_t b = 0; b < kinds.size(); ++b) {
      if (a == b) continue;
      Scenario s{
          .name = fmt::format("{}, then {}", kinds[a].name, kinds[b].name), .seed = seed++, .hours = 8};
      s.faults = {{kinds[a].value, 1000, 5}, {kinds[b].value, 1012, 9}};
      suite.doubles.push_back(std::move(s));
    }
  return suite;
}

void SuiteResult::add(const Outcome& o, bool single) {
  ++scenarios;
  node_years += static_cast<double>(o.scenario.nodes) * o.scenario.hours / (24 * 365.25);
  for (const std::string& p : o.problems) problems.push_back(fmt::format("{}: {}", o.scenario.name, p));
  // The first decision after each fault's first effect, against what is right for the faults that showed.
  bool right = true, asked = false;
  std::string told;
  for (const ActiveFault& f : o.faults) {
    if (f.shown_ms < 0) continue;
    bool is_right = false;
    for (const ActiveFault& other : o.faults)
      is_right = is_right || (other.shown_ms >= 0 && f.first_decision == info_of(other.kind).rule);
    if (f.first_decision.empty()) is_right = *info_of(f.kind).rule == '\0';
    // A person who was asked about the other fault meets this one too.
    const bool met = f.asked || (f.first_decision.empty() &&
                                 std::any_of(o.faults.begin(), o.faults.end(),
                                             [](const ActiveFault& other) { return other.asked; }));
    if (!is_right && met) asked = true;
    if (!is_right && !(met && !single)) {
      right = false;
      told += fmt::format("; {}: decided '{}', right is '{}'", name_of(f.kind), f.first_decision,
                          info_of(f.kind).rule);
    }
  }
  (single ? singles : doubles) += 1;
  if (!single && right && asked) ++asked_doubles;
  if (right && !asked) ++(single ? right_singles : right_doubles);
  if (!right) wrong.push_back(o.scenario.name + told);
  const bool progressed = o.trained_seconds > 0.4 * o.scenario.hours * 3600;
  if (!progressed && single)
    problems.push_back(fmt::format("{}: trained {:.0f} of {:.0f} s", o.scenario.name, o.trained_seconds,
                                   o.scenario.hours * 3600));
}

}  // namespace ingot::guard
