// See fact_tracker.h.
#include "guard/fact_tracker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ingot::guard {
namespace {

/// Seconds that a jump of the clock stays a fact: longer than a restart, during which nothing is decided.
constexpr double kJumpShown = 1800;

constexpr size_t kUsual = 64;      ///< windows that make the usual speed
constexpr double kLostAfter = 20;  ///< seconds without an answer of a node
constexpr double kJump = 5;        ///< seconds
constexpr double kDipsFor = 3600;  ///< seconds that dips are counted

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool sound(double value) {
  return value > 0 && value <= std::numeric_limits<double>::max();
}

}  // namespace

void FactTracker::resume(int64_t start, int64_t highest_step, int64_t idle_restarts, double now) {
  first_ = false;
  start_ = start;
  highest_ = highest_step;
  idle_restarts_ = idle_restarts;
  last_progress_ = last_now_ = now;
  job_ = JobState::running;
}

void FactTracker::look_at_progress(const Observation& seen, Facts& facts) {
  const bool restarted = seen.start != start_;
  if (restarted && !first_ && start_ > 0) ++idle_restarts_;
  if (restarted) of_start_ = {};
  const bool moved = seen.first.step > of_start_.step;
  if (first_ || restarted || moved || seen.job != job_) last_progress_ = seen.now;
  if (moved) of_start_.step = seen.first.step;
  if (of_start_.step > highest_) highest_ = of_start_.step, idle_restarts_ = moved ? 0 : idle_restarts_;
  first_ = false;
  start_ = seen.start;
  job_ = seen.job;
  for (const std::string& line : seen.log) of_start_.log.add_log(line);
  facts = of_start_.log;
  facts.set(Fact::job, name_of(seen.job));
  const bool failed = seen.job == JobState::ended && seen.exit_code != 0;
  facts.set(Fact::failure, name_of(seen.failure ? seen.failure->kind
                                   : failed     ? FailureKind::unknown
                                                : FailureKind::none));
  facts.set(Fact::exit_code, seen.job == JobState::ended ? seen.exit_code : -1);
  facts.set(Fact::silence, seen.now - last_progress_);
  if (usual_step_ > 0) facts.set(Fact::silent_steps, (seen.now - last_progress_) / usual_step_);
  facts.set(Fact::idle_restarts, idle_restarts_);
}

void FactTracker::look_at_speed(const Observation& seen, Facts& facts) {
  const bool trains = seen.job == JobState::running && seen.first.step >= 0 && sound(seen.first.step_seconds);
  new_window_ =
      seen.job == JobState::running && seen.first.step >= 0 && seen.first.step != of_start_.window_step;
  if (new_window_) of_start_.window_step = seen.first.step;
  if (trains && new_window_) {
    throughput_ = usual_.size() < 5 ? 1 : usual_step_ / seen.first.step_seconds;
    of_start_.slow_steps = throughput_ < 0.9 ? of_start_.slow_steps + 1 : 0;
    if (throughput_ < 0.5) dipped_ = true;
    if (dipped_ && throughput_ >= 0.9) dipped_ = false, dips_.push_back(seen.now);
    if (throughput_ >= 0.9 || usual_.size() < 5) usual_.push_back(seen.first.step_seconds);
    if (usual_.size() > kUsual) usual_.pop_front();
    usual_step_ = median({usual_.begin(), usual_.end()});
  }
  while (!dips_.empty() && dips_.front() < seen.now - kDipsFor) dips_.pop_front();
  if (new_window_) of_start_.spike_steps = seen.first.spike ? of_start_.spike_steps + 1 : 0;
  facts.set(Fact::throughput, trains ? throughput_ : 1);
  facts.set(Fact::slow_steps, of_start_.slow_steps);
  facts.set(Fact::dips, dips_.size());
  facts.set(Fact::data_wait, trains ? seen.first.data_wait : 0);
  facts.set(Fact::spike_steps, of_start_.spike_steps);
  facts.set(Fact::checkpoint_age, seen.checkpoint_age);
  facts.set(Fact::damaged_checkpoints, seen.damaged_checkpoints);
  facts.set(Fact::disk_free, seen.disk_free);
}

void FactTracker::look_at_nodes(const Observation& seen, Situation& s) {
  Facts& facts = s.facts;
  const auto suspect = [&](bool sign, const std::string& node, Fact fact, int64_t rank = -1) {
    if (!sign) return;
    s.suspects[node].insert(fact);
    if (rank >= 0) s.ranks.insert(fmt::format("rank {} on {}", rank, node));
  };
  for (const Suspect& who : seen.minority) suspect(true, who.node, Fact::mismatches, who.rank);
  const auto is_silent = [](const NodeReport& n) { return !(n.age <= kLostAfter); };
  const NodeReport* slowest = nullptr;
  std::vector<double> busy;
  busy.reserve(seen.nodes.size());
  std::vector<const NodeReport*> signs;  // those that say anything: few of thousands
  for (const NodeReport& n : seen.nodes) {
    if (sound(n.busy)) {
      busy.push_back(n.busy);
      if (slowest == nullptr || n.busy > slowest->busy) slowest = &n;
    }
    if ((n.throttled > 0) | (n.memory_errors > 0) | (n.link_errors > 0) | !n.has_data | n.is_down | n.late |
        is_silent(n))
      signs.push_back(&n);
  }
  std::set<std::string_view> answers;  // nodes of which anything was heard lately, where any report is silent
  if (std::any_of(signs.begin(), signs.end(), [&](const NodeReport* n) { return is_silent(*n); }))
    for (const NodeReport& n : seen.nodes)
      if (!is_silent(n)) answers.insert(n.name);
  int64_t memory = 0, links = 0;
  for (const NodeReport* const sign : signs) {
    const NodeReport& n = *sign;
    memory += std::max<int64_t>(0, n.memory_errors);
    links += std::max<int64_t>(0, n.link_errors);
    suspect(n.throttled > 0, n.name, Fact::throttled);
    suspect(n.memory_errors > 0, n.name, Fact::memory_errors);
    suspect(n.link_errors > 0, n.name, Fact::link_errors);
    suspect(!n.has_data, n.name, Fact::empty_nodes);
    const bool silent = is_silent(n), lost = n.is_down || (silent && !answers.contains(n.name));
    suspect(lost, n.name, Fact::lost_nodes);
    suspect(!lost && (n.late || silent), n.name, Fact::silence, n.rank);
  }
  if (busy.size() >= 2) {
    const double ratio = slowest->busy / median(std::move(busy));
    const Suspect who{slowest->name, slowest->rank};
    facts.set(Fact::slowest, ratio);
    if (new_window_)
      of_start_.slow_windows =
          ratio > kSlow ? (who == of_start_.slowest ? of_start_.slow_windows + 1 : 1) : 0;
    if (new_window_) of_start_.slowest = ratio > kSlow ? who : Suspect{};
  }
  suspect(of_start_.slow_windows >= 2, of_start_.slowest.node, Fact::slow_windows, of_start_.slowest.rank);
  if (seen.failure)
    suspect(!seen.failure->node.empty(), seen.failure->node, Fact::failure, seen.failure->rank);
  facts.set(Fact::slow_windows, of_start_.slow_windows);
  for (const Fact fact : {Fact::throttled, Fact::lost_nodes, Fact::empty_nodes})
    facts.set(fact, std::count_if(s.suspects.begin(), s.suspects.end(),
                                  [&](const auto& node) { return node.second.contains(fact); }));
  facts.set(Fact::memory_errors, memory);
  facts.set(Fact::link_errors, links);
  facts.set(Fact::mismatches, seen.minority.size());
  facts.set(Fact::copies, seen.copies);
  facts.set(Fact::nodes, s.suspects.size());
}

void FactTracker::look_at_clock(const Observation& seen, Facts& facts) {
  const double jump = (seen.wall - last_wall_) - (seen.now - last_now_);
  if (last_wall_ > 0 && std::abs(jump) > kJump) jumped_ = seen.now, jump_ = jump;
  last_now_ = seen.now;
  last_wall_ = seen.wall;
  if (seen.now - jumped_ < kJumpShown) facts.set(Fact::clock_jump, std::abs(jump_));
}

Situation FactTracker::look(const Observation& seen) {
  Situation s;
  s.now = seen.now;
  look_at_progress(seen, s.facts);
  look_at_speed(seen, s.facts);
  look_at_nodes(seen, s);
  look_at_clock(seen, s.facts);
  return s;
}

}  // namespace ingot::guard
