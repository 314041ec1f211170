// See guard_metrics.h.
#include "apps/guard_metrics.h"

#include <algorithm>

#include "base/clock.h"
#include "report/prometheus.h"

namespace ingot::guard {
namespace {

constexpr const char *kWatching = "watching", *kActing = "acting", *kAsking = "asking",
                     *kFinished = "finished";

bool is_of(const Entry& e, Event event, Action action) {
  return e.event == event && contains(e.actions, action);
}

}  // namespace

void GuardMetrics::count(const Entry& e) {
  const std::lock_guard lock(mutex_);
  if (e.event == Event::job) starts_ = e.value;
  alerts_ += e.event == Event::alerted || is_of(e, Event::act, Action::alert);
  questions_ += is_of(e, Event::act, Action::ask);
  if (e.event == Event::decided) ++decisions_[e.rule];
}

void GuardMetrics::publish(const Guard& guard) {
  const std::lock_guard lock(mutex_);
  books_ = guard.books();
  job_ = guard.tracker().job();
  state_ = guard.finished() ? kFinished : guard.asks() ? kAsking : guard.busy() ? kActing : kWatching;
  silence_ = guard.now() - guard.tracker().last_progress();
  throughput_ = guard.tracker().throughput();
  excluded_ = guard.excluded().size();
  published_ = monotonic_seconds();
}

std::string GuardMetrics::text() const {
  const std::lock_guard lock(mutex_);
  PrometheusPage page;
  const auto gauge = [&](const char* name, const char* help, double value) {
    page.one(name, MetricKind::gauge, help, value);
  };
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    page.one(name, MetricKind::counter, help, static_cast<double>(value));
  };
  page.begin("ingot_guard_state", MetricKind::gauge, "1 for what the guard does now.");
  for (const char* state : {kWatching, kActing, kAsking, kFinished})
    page.add(std::string_view(state) == state_, {{"state", state}});
  page.begin("ingot_guard_job", MetricKind::gauge, "1 for the state of the job.");
  for (const auto& s : enum_names(JobState{})) page.add(s.value == job_, {{"state", std::string(s.name)}});
  gauge("ingot_guard_goodput_ratio", "Time of training that was kept over all time.", books_.goodput());
  page.begin(
      "ingot_guard_time_seconds", MetricKind::gauge,
      "All time since the guard began, by cause; training that a restart makes again moves from kept to "
      "lost.");
  for (const auto& c : enum_names(Cause{}))
    page.add(static_cast<double>(books_.of_ms(c.value)) / 1000, {{"cause", std::string(c.name)}});
  gauge("ingot_guard_step", "The last complete step that the guard has seen.",
        static_cast<double>(books_.step()));
  counter("ingot_guard_lost_steps_total", "Steps that restarts made again.", books_.lost_steps());
  counter("ingot_guard_restarts_total", "Starts of the job after its first.",
          std::max<int64_t>(0, starts_ - 1));
  counter("ingot_guard_alerts_total", "Alerts.", alerts_);
  counter("ingot_guard_questions_total", "Times that a person was asked.", questions_);
  page.begin("ingot_guard_decisions_total", MetricKind::counter, "Decisions by rule.");
  for (const auto& [rule, times] : decisions_) page.add(static_cast<double>(times), {{"rule", rule}});
  gauge("ingot_guard_excluded_nodes", "Nodes that are left out.", static_cast<double>(excluded_));
  gauge("ingot_guard_throughput_ratio", "Speed of the job over its usual one.", throughput_);
  gauge("ingot_guard_silence_seconds", "Since the job's last progress.", silence_);
  if (published_ > 0)
    gauge("ingot_guard_look_age_seconds", "Since the guard's last look.", monotonic_seconds() - published_);
  return page.text();
}

}  // namespace ingot::guard
