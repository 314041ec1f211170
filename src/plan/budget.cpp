// See budget.h.
#include "plan/budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/progress.h"

namespace ingot {

double FailureRate::between() const {
  return device_hours > 0 ? 3600 * device_hours / devices : std::numeric_limits<double>::infinity();
}

double goodput(const FailureRate& failures, double interval, double pause) {
  const double period = interval + pause, mean = failures.between();
  if (!std::isfinite(mean)) return interval / period;
  // A period succeeds with probability exp(-period / mean). Until it does, each failure costs the time into
  // the period (together mean * (exp(period / mean) - 1) a period), detection and restart.
  const double failures_of_period = std::expm1(period / mean);
  return interval / (failures_of_period * (mean + failures.detect_seconds + failures.restart_seconds));
}

double best_interval(const FailureRate& failures, double pause) {
  const double mean = failures.between();
  if (!std::isfinite(mean)) return mean;
  double low = std::min(1.0, mean), high = 10 * mean;
  for (int i = 0; i < 200; ++i) {  // one peak
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    const bool later = goodput(failures, a, pause) < goodput(failures, b, pause);
    (later ? low : high) = later ? a : b;
  }
  return (low + high) / 2;
}

LoaderReads loader_reads(double bytes, double page_bytes, double seconds, double iops) {
  const double pages = std::ceil(bytes / page_bytes);
  return {pages / seconds, pages / iops};
}

RunBudget budget_run(const Recipe& recipe, const RunPlan& plan, const RunTime& time, const Cluster& cluster) {
  constexpr double kTokenBytes = 4, kPageBytes = 4096, kMonth = 28;
  constexpr double kRecords = 3;  // files of a run's records, written out before a checkpoint is made
  RunBudget b;
  const double step = time.step.seconds, ranks = plan.what.ranks,
               nodes = std::ceil(ranks / static_cast<double>(cluster.devices_per_node));
  const auto tokens = static_cast<double>(plan.tokens());
  for (const PhaseConfig& s : recipe.phases) b.steps += s.steps, b.tokens += s.tokens();
  b.step_days = step / tokens * static_cast<double>(b.tokens) / 86400;
  const DeviceSpec& device = cluster.device;
  const double copy = cluster.host.offload_gb_per_s > 0 ? cluster.host.offload_gb_per_s
                      : device.copy_gb_per_s > 0        ? device.copy_gb_per_s
                                                        : device.bandwidth / 2;
  b.checkpoint_pause =
      1e-3 * device.save_ms + static_cast<double>(plan.fullest().plan.memory.checkpoint) / (1e9 * copy);
  if (!cluster.storage.empty()) {
    const StorageSpec& storage = cluster.storage.front();
    b.checkpoint_pause += kRecords * 1e-3 * storage.sync_ms;
    b.checkpoint_write = 1e-3 * storage.checkpoint_ms +
                         static_cast<double>(plan.checkpoint_bytes) / (nodes * 1e9 * storage.write_gb_per_s);
    if (storage.iops > 0)
      b.reads = loader_reads(tokens / nodes * kTokenBytes, kPageBytes, step, storage.iops);
  }
  const FailureRate failures{cluster.failures.device_hours, ranks, 60 * cluster.failures.detect_minutes,
                             60 * cluster.failures.restart_minutes};
  const double best = std::max(best_interval(failures, b.checkpoint_pause), b.checkpoint_write),
               own = static_cast<double>(std::max<int64_t>(1, recipe.checkpoint.every)) * step,
               interval = std::isfinite(best) ? best : own;
  b.interval_steps = std::max<int64_t>(1, std::llround(interval / step));
  b.goodput = goodput(failures, interval, b.checkpoint_pause);
  b.days = b.step_days / b.goodput;
  b.device_hours = b.days * 24 * ranks;
  b.price = b.device_hours * cluster.device.hour_price;
  b.devices_for_a_month = ranks * b.days / kMonth;
  b.tokens_per_parameter = static_cast<double>(b.tokens) / static_cast<double>(plan.parameters.total);
  return b;
}

std::string to_text(const RunBudget& b) {
  std::string text =
      named_line("budget", fmt::format("{} steps, {} tokens, {:.0f} a parameter", group_digits(b.steps),
                                       format_count(static_cast<double>(b.tokens)), b.tokens_per_parameter)) +
      named_line(
          "", fmt::format("{:.1f} days of steps; {:.1f} days and {} device hours at a goodput of {:.1f} %",
                          b.step_days, b.days, group_digits(std::llround(b.device_hours)), 100 * b.goodput)) +
      named_line("", fmt::format("in 28 days: {:.0f} devices like these", std::ceil(b.devices_for_a_month)));
  if (b.price > 0)
    text += named_line("", "at the price of the cluster file: " + group_digits(std::llround(b.price)));
  text +=
      named_line("checkpoints", fmt::format("training stops for {} each; {} to write; best every {} steps",
                                            format_seconds(b.checkpoint_pause),
                                            format_seconds(b.checkpoint_write), b.interval_steps));
  if (b.reads.per_second > 0)
    text += named_line("reads",
                       fmt::format("{:.0f} a second of a node; steps shorter than {} would wait for storage",
                                   b.reads.per_second, format_seconds(b.reads.break_even)));
  return text;
}

std::string to_json(const RunBudget& b) {
  return nlohmann::ordered_json{{"steps", b.steps},
                                {"tokens", b.tokens},
                                {"step_days", b.step_days},
                                {"days", b.days},
                                {"device_hours", b.device_hours},
                                {"price", b.price},
                                {"goodput", b.goodput},
                                {"devices_for_28_days", b.devices_for_a_month},
                                {"checkpoint_pause_seconds", b.checkpoint_pause},
                                {"checkpoint_write_seconds", b.checkpoint_write},
                                {"checkpoint_interval_steps", b.interval_steps},
                                {"reads_per_second", b.reads.per_second}}
      .dump(2);
}

}  // namespace ingot
