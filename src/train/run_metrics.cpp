// See run_metrics.h.
#include "train/run_metrics.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "report/prometheus.h"

namespace ingot {
namespace {

struct ShownScalar {
  const char *name, *scalar;  ///< of the page, and of the row
  double scale;
  MetricKind kind;
  const char* help;
};

constexpr MetricKind kGauge = MetricKind::gauge;

/// Names of a row: report/metrics.h.
constexpr ShownScalar kScalars[] = {
    {"ingot_loss", "loss", 1, kGauge, "Mean cross entropy of the step, nats per token."},
    {"ingot_learning_rate", "lr", 1, kGauge, "Of the first parameter group."},
    {"ingot_gradient_norm", "grad_norm", 1, kGauge, "Of the whole gradient, before clipping."},
    {"ingot_tokens_total", "tokens", 1, MetricKind::counter, "Training tokens since the start of the run."},
    {"ingot_tokens_per_second", "tokens_per_second", 1, kGauge, "Of the step, on all ranks."},
    {"ingot_step_seconds", "step_seconds", 1, kGauge, "Time of the step."},
    {"ingot_data_wait_seconds", "data_wait_seconds", 1, kGauge, "Of the step, its wait for data."},
    {"ingot_roofline_ratio", "percent_of_roofline", 0.01, kGauge,
     "Shortest possible time of the step over its time."},
    {"ingot_memory_bytes", "memory_bytes", 1, kGauge, "Peak of the leading rank's memory."},
    {"ingot_reward", "rl/reward", 1, kGauge, "Mean reward of the step's replies."}};

}  // namespace

void RunMetrics::publish(RunSnapshot snapshot) {
  const std::lock_guard lock(mutex_);
  now_ = std::move(snapshot);
  published_ = monotonic_seconds();
  if (!now_.row) return;
  constexpr std::string_view kBegin = "val/", kEnd = "/loss";
  for (const auto& [name, value] : now_.row->scalars)
    if (name.starts_with(kBegin) && name.ends_with(kEnd) && name.size() > kBegin.size() + kEnd.size())
      validation_[name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size())] = value;
}

std::string RunMetrics::text() const {
  const std::lock_guard lock(mutex_);
  PrometheusPage page;
  const auto one = [&](const char* name, const char* help, double value) {
    page.one(name, kGauge, help, value);
  };
  one("ingot_step", "The last complete step.", static_cast<double>(now_.step));
  one("ingot_planned_steps", "At which the run ends.", static_cast<double>(now_.total_steps));
  if (now_.row)
    for (const ShownScalar& s : kScalars)
      if (const double* value = now_.row->scalar(s.scalar))
        page.one(s.name, s.kind, s.help, *value * s.scale);
  const double* seconds = now_.row ? now_.row->scalar("step_seconds") : nullptr;
  if (seconds != nullptr && *seconds > 0 && now_.peak_gflops > 0)
    one("ingot_mfu", "FLOPs of the step's passes over those that the machine can do in its time.",
        now_.step_gflop / (*seconds * now_.peak_gflops));
  if (now_.left_seconds > 0) one("ingot_left_seconds", "To the end of the run.", now_.left_seconds);
  if (!validation_.empty())
    page.begin("ingot_validation_loss", kGauge, "The newest by source, nats per token.");
  for (const auto& [source, loss] : validation_) page.add(loss, {{"source", source}});
  if (now_.checkpoint_step >= 0) {
    one("ingot_checkpoint_step", "Of the newest complete checkpoint.",
        static_cast<double>(now_.checkpoint_step));
    one("ingot_checkpoint_age_seconds", "Since the newest complete checkpoint.",
        std::max(0.0, wall_seconds() - now_.checkpoint_wall));
  }
  if (published_ > 0)
    one("ingot_status_age_seconds", "Since the line of the log that these numbers are of.",
        monotonic_seconds() - published_);
  return page.text();
}

}  // namespace ingot
