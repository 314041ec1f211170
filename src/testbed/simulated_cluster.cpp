// See simulated_cluster.h.
#include "testbed/simulated_cluster.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace ingot::guard {
namespace {

constexpr int64_t kSecond = 1000, kMinute = 60 * kSecond;
constexpr size_t kSaved = 64;  ///< checkpoints that are remembered

int64_t in_ms(double seconds) {
  return std::llround(seconds * 1000);
}

}  // namespace

SimulatedCluster::SimulatedCluster(const Scenario& scenario, uint64_t stream)
    : s_(scenario),
      random_(static_cast<uint64_t>(scenario.seed) * 1'000'003 + stream, RandomPurpose::environment),
      step_(in_ms(scenario.step_seconds)),
      every_(in_ms(scenario.checkpoint_every)),
      pause_(in_ms(scenario.checkpoint_pause)),
      planned_(scenario.faults.begin(), scenario.faults.end()) {
  std::sort(planned_.begin(), planned_.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  for (int64_t i = 0; i < s_.nodes + s_.spares; ++i) spares_.push_back(fmt::format("n{:05}", i));
  saved_.push_back({});
  plan_random();
}

void SimulatedCluster::plan_random() {
  if (s_.device_hours_per_fault == 0) return;
  const double mean = s_.device_hours_per_fault * 3600 / static_cast<double>(s_.nodes * s_.devices);
  const double u = uniform(drawn_++) + 0x1p-33;
  const double from = next_random_ < 0 ? 0 : next_random_;
  next_random_ = from - mean * std::log(u);
}

int64_t SimulatedCluster::next_fault_ms() const {
  int64_t next = INT64_MAX;
  if (!planned_.empty()) next = in_ms(planned_.front().at);
  if (next_random_ >= 0) next = std::min(next, in_ms(next_random_));
  return next;
}

void SimulatedCluster::begin_due_faults() {
  while (!planned_.empty() && in_ms(planned_.front().at) <= now_) {
    begin_fault(planned_.front());
    planned_.pop_front();
  }
  while (next_random_ >= 0 && in_ms(next_random_) <= now_) {
    double total = 0;
    for (const FaultShare& f : s_.shares) total += f.share;
    double at = uniform(drawn_++) * total;
    PlannedFault fault{s_.shares.back().kind, next_random_,
                       static_cast<int64_t>(random_.below(drawn_++, static_cast<uint64_t>(s_.nodes)))};
    for (const FaultShare& f : s_.shares) {
      if (at < f.share) {
        fault.kind = f.kind;
        break;
      }
      at -= f.share;
    }
    begin_fault(fault);
    plan_random();
  }
}

void SimulatedCluster::begin_fault(const PlannedFault& planned) {
  ActiveFault f{.kind = planned.kind, .at_ms = now_};
  if (!placed_.empty()) f.node = placed_[static_cast<size_t>(planned.node) % placed_.size()];
  const FaultInfo& info = info_of(f.kind);
  const double u = uniform(drawn_++);
  if (info.least_seconds > 0) f.until_ms = now_ + in_ms(info.least_seconds + info.spread * u);
  if (info.of_node) f.until_ms = now_ + in_ms(s_.mend_minutes * 60);
  f.step = step_of(work_) + 3;
  if (f.kind == FaultKind::clock_jump) wall_offset_ += 3600, f.over = true, f.shown_ms = now_;
  if (f.kind == FaultKind::guard_killed) ++guard_kills_, f.over = true;
  if (!f.over) open_.push_back(faults_.size());
  undecided_.push_back(faults_.size());
  faults_.push_back(std::move(f));
}

bool SimulatedCluster::active(FaultKind kind) const {
  return std::any_of(open_.begin(), open_.end(), [&](size_t i) { return faults_[i].kind == kind; });
}

double SimulatedCluster::speed() const {
  double slowest = 1;
  for (const size_t i : open_) {
    const ActiveFault& f = faults_[i];
    const FaultInfo& info = info_of(f.kind);
    const double minutes = static_cast<double>(now_ - f.at_ms) / static_cast<double>(kMinute);
    if (info.speed == 0 || (info.of_node && !in_use(f.node))) continue;
    const double speed = f.kind == FaultKind::drift ? 1 / (1 + 0.01 * minutes)
                         : f.kind == FaultKind::dips && std::fmod(minutes, 10) < 1.5 ? 0.3
                                                                                     : info.speed;
    slowest = std::min(slowest, speed);
  }
  return slowest;
}

bool SimulatedCluster::stalls() const {
  return std::any_of(open_.begin(), open_.end(), [&](size_t i) {
    const FaultInfo& info = info_of(faults_[i].kind);
    return info.speed == 0 && (!info.of_node || in_use(faults_[i].node));
  });
}

bool SimulatedCluster::saves_fail() const {
  return active(FaultKind::disk_full) || active(FaultKind::no_checkpoint);
}

void SimulatedCluster::train(int64_t ms) {
  const double v = speed();
  const int64_t until = now_ + ms;
  while (ms > 0) {
    if (since_save_ >= every_) {
      const int64_t d = std::min(ms, pause_ - in_pause_);
      in_pause_ += d;
      ms -= d;
      if (in_pause_ < pause_) return;
      seen_.first.saved_seconds += static_cast<double>(pause_) / 1000;
      in_pause_ = since_save_ = 0;
      if (saves_fail()) continue;
      saved_.push_back({work_});
      saved_at_ = until - ms;
      if (saved_.size() > kSaved) saved_.erase(saved_.begin());
      continue;
    }
    const int64_t left = every_ - since_save_;
    const int64_t needed = v == 1 ? left : std::llround(std::ceil(static_cast<double>(left) / v));
    const int64_t d = std::min(ms, needed);
    const int64_t gained =
        d == needed ? left : std::min<int64_t>(left, std::llround(static_cast<double>(d) * v));
    work_ += gained;
    since_save_ += gained;
    ms -= d;
  }
}

void SimulatedCluster::try_to_place() {
  if (active(FaultKind::preempted)) return;
  const size_t missing = static_cast<size_t>(s_.nodes) - placed_.size();
  if (spares_.size() < missing && !request_.fewer) return;
  for (size_t i = 0; i < missing && !spares_.empty(); ++i) {
    placed_.push_back(spares_.front());
    spares_.pop_front();
    moved_ = true;
  }
  if (moved_) {
    moved_ = false;
    seen_.nodes.clear();
    touched_.clear();
    index_.clear();
    for (const std::string& n : placed_) {
      index_[n] = seen_.nodes.size();
      const double share = 0.8 + 0.02 * uniform(1'000'000'000 + seen_.nodes.size());
      seen_.nodes.push_back({.name = n, .age = 1, .busy = s_.step_seconds * share});
    }
  }
  phase_ = Phase::starting;
  phase_until_ = now_ + in_ms(s_.start_seconds);
  seen_.start = request_.number;
  seen_.first.start_step = seen_.first.step = -1;
  seen_.first.saved_seconds = 0;
  seen_.failure.reset();
  seen_.exit_code = -1;
  stop_asked_ = false;
  stalled_since_ = -1;
}

void SimulatedCluster::start(const StartRequest& request) {
  if (request.number <= requested_) return;
  requested_ = request.number;
  if (alive()) {
    violations_.push_back(fmt::format("{} s: a second job was started", now_ / kSecond));
    return;
  }
  // Both are in order, and most were excluded before.
  std::vector<std::string> fresh;
  std::set_difference(request.excluded.begin(), request.excluded.end(), request_.excluded.begin(),
                      request_.excluded.end(), std::back_inserter(fresh));
  const auto left_out = [&](const std::string& n) {
    return std::binary_search(fresh.begin(), fresh.end(), n);
  };
  std::erase_if(spares_, left_out);
  moved_ = std::erase_if(placed_, left_out) > 0 || moved_;
  for (const std::string& n : fresh) {
    repairs_.push_back({now_ + in_ms(s_.repair_hours * 3600), n});
    const bool guilty = std::any_of(faults_.begin(), faults_.end(), [&](const ActiveFault& f) {
      return f.node == n || f.kind == FaultKind::network_switch;
    });
    if (!guilty)
      violations_.push_back(fmt::format("{} s: the healthy node {} was excluded", now_ / kSecond, n));
  }
  request_ = request;
  if (request.from_step >= 0) {
    std::erase_if(saved_, [&](const Restore& r) { return step_of(r.work) > request.from_step; });
    for (const size_t i : open_) {
      ActiveFault& f = faults_[i];
      if (f.kind == FaultKind::corrupt_once || (f.kind == FaultKind::bad_batch && request.skip_batches > 0))
        f.over = true;
    }
  }
  phase_ = Phase::waiting;
  try_to_place();
}

void SimulatedCluster::stop(bool at_once) {
  if (!alive()) return;
  stop_asked_ = true;
  if (stalls() && !at_once) return;
  if (!at_once && trains() && !saves_fail()) saved_.push_back({work_});
  end_job(FailureKind::signal, "", at_once ? -1 : 130, "stopped");
}

std::optional<std::vector<std::string>> SimulatedCluster::burn_in(const std::vector<std::string>& nodes) {
  if (burn_until_ < 0) {
    burning_ = nodes;
    burn_until_ = now_ + in_ms(s_.burn_in_seconds);
  }
  if (now_ < burn_until_) return std::nullopt;
  burn_until_ = -1;
  std::vector<std::string> failing;
  for (const std::string& n : burning_)
    if (std::any_of(open_.begin(), open_.end(),
                    [&](size_t i) { return faults_[i].node == n && info_of(faults_[i].kind).of_node; }))
      failing.push_back(n);
  return failing;
}

std::optional<std::vector<Action>> SimulatedCluster::ask(int64_t entry, const std::string&) {
  const auto [asked, is_new] = asked_.try_emplace(entry, now_);
  questions_ += is_new;
  if (now_ < asked->second + in_ms(s_.person_minutes * 60)) return std::nullopt;
  const bool moves = trains() && !stalls();
  for (const size_t i : open_) faults_[i].over = true;  // a person mends what there is
  return std::vector<Action>{moves ? Action::wait : Action::restart};
}

void SimulatedCluster::end_job(FailureKind kind, const std::string& node, int exit_code,
                               const std::string& line) {
  if (trains()) seen_.first.step = step_of(work_);
  phase_ = Phase::ended;
  seen_.exit_code = exit_code;
  seen_.failure =
      FailureReport{.kind = kind, .node = node, .message = line, .step = step_of(work_), .trouble_step = 0};
  lines_.push_back(line);
  stalled_since_ = -1;
  since_save_ = in_pause_ = 0;
}

/// What a fault does to a job that is alive.
void SimulatedCluster::strike(ActiveFault& f) {
  using enum FaultKind;
  const FaultInfo& info = info_of(f.kind);
  const bool can_end = info.end.kind != FailureKind::none;
  bool ends = can_end && phase_ >= info.end.since;
  if (f.kind == bug || f.kind == bad_batch) ends = ends && step_of(work_) >= f.step;
  if (f.kind == preempted) ends = ends && f.strikes == 0;
  if (f.kind == disk_full) ends = ends && now_ - f.at_ms > 3 * (every_ + pause_) + kMinute;
  bool shows = can_end ? ends : trains();
  if (f.kind == network_switch || f.kind == disk_full) shows = true;
  if (f.kind == flap)  // once others have waited long enough for a decision
    shows = stalled_since_ >= 0 && now_ - stalled_since_ >= 35 * kSecond;
  if (shows && f.shown_ms < 0) f.shown_ms = now_;
  if (!ends) return;
  if (f.kind == damaged_checkpoint && saved_.size() > 1) saved_.back().damaged = true;
  if (f.kind == preempted && trains() && !saves_fail()) saved_.push_back({work_});
  ++f.strikes;
  f.over = info.end.once;
  end_job(info.end.kind, info.of_node || f.kind == kill ? f.node : "", info.end.exit_code,
          fmt::format(fmt::runtime(info.end.line), f.node));
  if (f.kind == bad_batch) seen_.failure->trouble_step = std::max<int64_t>(1, f.step - 3);
}

void SimulatedCluster::strike() {
  using enum FaultKind;
  for (const size_t i : open_) {
    ActiveFault& f = faults_[i];
    if (f.over) continue;
    if (f.node.empty() && !placed_.empty()) f.node = placed_[i % placed_.size()];
    if (now_ >= f.until_ms || (info_of(f.kind).of_node && !f.node.empty() && !in_use(f.node))) {
      f.over = true;
      continue;
    }
    if (alive()) strike(f);
  }
  if (trains() && stalls()) {
    if (stalled_since_ < 0) stalled_since_ = now_;
    if (now_ - stalled_since_ >= in_ms(s_.deadline))
      end_job(FailureKind::late, "", 1, "not complete after the deadline; a rank is missing");
  } else {
    stalled_since_ = -1;
  }
  std::erase_if(open_, [&](size_t i) { return faults_[i].over; });
}

void SimulatedCluster::advance_to(int64_t target) {
  begin_due_faults();
  strike();
  while (now_ < target) {
    int64_t d = target - now_;
    const int64_t next = next_fault_ms();
    if (next > now_) d = std::min(d, next - now_);
    const bool timed = phase_ == Phase::starting || phase_ == Phase::loading;
    if (timed) d = std::min(d, phase_until_ - now_);
    if (!open_.empty()) d = std::min(d, kSecond);
    if (trains() && !stalls()) train(d);
    now_ += d;
    if (timed && now_ >= phase_until_) {
      if (phase_ == Phase::starting) {
        phase_ = Phase::loading;
        phase_until_ = now_ + in_ms(s_.load_seconds);
      } else {
        phase_ = Phase::training;
        started_training_ = saved_at_ = now_;
        while (saved_.size() > 1 && saved_.back().damaged) saved_.pop_back();
        work_ = saved_.back().work;
        since_save_ = in_pause_ = 0;
        seen_.first.start_step = step_of(work_);
      }
    }
    if (phase_ == Phase::waiting) try_to_place();
    begin_due_faults();
    strike();
  }
  for (; !repairs_.empty() && repairs_.front().first <= now_; repairs_.pop_front())
    spares_.push_back(repairs_.front().second + "+");  // another one stands in its place, with another name
}

bool SimulatedCluster::unusual() const {
  const bool fresh = trains() && now_ - started_training_ < 8 * step_;
  return !trains() || fresh || !open_.empty() || stop_asked_ || !lines_.empty();
}

/// What nodes and the job say while a fault is open.
void SimulatedCluster::show(ActiveFault& f) {
  using enum FaultKind;
  const bool used = in_use(f.node);
  const int64_t for_ms = now_ - f.at_ms;
  if (f.kind == disk_full) seen_.disk_free = 0.005;
  if (f.kind == slow_storage && trains()) seen_.first.data_wait = 0.5;
  if (f.kind == slow_transport && trains() && std::exchange(f.strikes, seen_.start) != seen_.start)
    lines_.push_back("messages go through host memory, not the fast link");
  if (f.kind == bad_batch && trains() && step_of(work_) >= f.step - 2) seen_.first.spike = true;
  if (!used) return;
  touched_.push_back(index_.at(f.node));
  NodeReport& n = seen_.nodes[touched_.back()];
  if (f.kind == node_lost) n.age = static_cast<double>(for_ms) / 1000;
  if (f.kind == hang && trains()) n.late = true;
  if (f.kind == flap || f.kind == nic) n.link_errors = 3;
  if (f.kind == network_switch)
    for (size_t i = 0; i < 4; ++i) {
      touched_.push_back((index_.at(f.node) + i) % seen_.nodes.size());
      seen_.nodes[touched_.back()].link_errors = 5;
    }
  if (f.kind == memory_error) n.memory_errors = 1;
  if ((f.kind == corrupt_once || f.kind == corrupt_often) && trains() && for_ms > kMinute) {
    seen_.minority = {{f.node}};
    seen_.agreed_step = std::max<int64_t>(0, f.step - 4);
  }
  if (f.kind == throttle) n.throttled = 1;
  if (f.kind == slow || f.kind == drift || f.kind == throttle) n.busy /= speed();
  if (f.kind == empty_node) n.has_data = false;
}

const Observation& SimulatedCluster::observe() {
  seen_.now = static_cast<double>(now_) / 1000;
  seen_.wall = 1.7e9 + seen_.now + static_cast<double>(wall_offset_);
  constexpr JobState kStates[] = {JobState::absent,  JobState::absent,  JobState::starting,
                                  JobState::running, JobState::running, JobState::ended};
  seen_.job = kStates[static_cast<size_t>(phase_)];
  if (trains()) seen_.first.step = std::max(seen_.first.start_step, step_of(work_));
  const double wobble = 0.02 * uniform(2'000'000'000 + static_cast<uint64_t>(now_));
  seen_.first.step_seconds = s_.step_seconds / speed() * (1 + wobble);
  seen_.first.data_wait = 0.01;
  seen_.first.spike = false;
  seen_.disk_free = 0.5;
  seen_.minority.clear();
  seen_.copies = 4;
  for (const size_t i : touched_) {
    NodeReport& n = seen_.nodes[i];
    n = {.name = std::move(n.name), .age = 1, .busy = std::min(n.busy, s_.step_seconds * 0.82)};
  }
  touched_.clear();
  seen_.damaged_checkpoints = saved_.back().damaged ? 1 : 0;
  seen_.checkpoint_age =
      trains() ? static_cast<double>(now_ - saved_at_) / static_cast<double>(every_ + pause_) : 0;
  for (const size_t i : open_) show(faults_[i]);
  seen_.log = std::exchange(lines_, {});
  seen_.checkpoints.clear();
  for (const Restore& r : saved_)
    if (!r.damaged) seen_.checkpoints.push_back(step_of(r.work));
  return seen_;
}

void SimulatedCluster::heard(const std::string& rule, bool asks) {
  std::erase_if(undecided_, [&](size_t i) {
    ActiveFault& f = faults_[i];
    if (f.shown_ms >= 0) f.first_decision = rule, f.asked = asks;
    return f.shown_ms >= 0 || f.over;
  });
}

}  // namespace ingot::guard
