// See run_budget.h.
#include "plan/run_budget.h"

#include <algorithm>
#include <cmath>

#include "base/progress.h"

namespace ingot {

RunBudget budget_run(const Recipe& recipe, const RunPlan& plan, const RunTime& time, const Cluster& cluster) {
  constexpr double kTokenBytes = 4, kPageBytes = 4096, kMonth = 28;
  RunBudget b;
  const double per_token = time.step.seconds / static_cast<double>(plan.tokens());
  for (const PhaseConfig& s : recipe.phases) b.steps += s.steps, b.tokens += s.tokens();
  const double seconds = per_token * static_cast<double>(b.tokens);
  b.step_days = seconds / 86400;
  const double ranks = plan.what.ranks,
               nodes = std::ceil(ranks / static_cast<double>(cluster.devices_per_node));
  const auto share = static_cast<double>(plan.fullest().plan.memory.checkpoint);
  const double copy =
      cluster.host.offload_gb_per_s > 0 ? cluster.host.offload_gb_per_s : cluster.device.bandwidth / 2;
  b.checkpoint_pause = share / (1e9 * copy);
  if (!cluster.storage.empty())
    b.checkpoint_write =
        static_cast<double>(plan.checkpoint_bytes) / (nodes * 1e9 * cluster.storage.front().write_gb_per_s);
  const FailureRate failures{cluster.failures.device_hours, ranks, 60 * cluster.failures.detect_minutes,
                             60 * cluster.failures.restart_minutes};
  b.interval = std::max(best_interval(failures, b.checkpoint_pause), b.checkpoint_write);
  const double own = static_cast<double>(std::max<int64_t>(1, recipe.checkpoint.every)) * time.step.seconds;
  const double used = std::isfinite(b.interval) ? b.interval : own;
  b.interval_steps = std::max<int64_t>(1, std::llround(used / time.step.seconds));
  b.goodput = goodput(failures, used, b.checkpoint_pause);
  b.days = b.step_days / b.goodput;
  b.device_hours = b.days * 24 * ranks;
  b.price = b.device_hours * cluster.device.hour_price;
  b.devices_for_a_month = ranks * b.days / kMonth;
  b.tokens_per_parameter = static_cast<double>(b.tokens) / static_cast<double>(plan.parameters.total);
  const double iops = cluster.storage.empty() ? 0 : cluster.storage.front().iops;
  if (iops > 0)
    b.reads = loader_reads(1, static_cast<double>(plan.tokens()) / nodes, kTokenBytes, kPageBytes,
                           time.step.seconds, iops);
  return b;
}

std::string to_text(const RunBudget& b) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<12} {}\n", name, value);
  };
  line("budget", fmt::format("{} steps, {} tokens, {:.0f} a parameter", group_digits(b.steps),
                             format_count(static_cast<double>(b.tokens)), b.tokens_per_parameter));
  line("", fmt::format("{:.1f} days of steps; {:.1f} days and {} device hours at a goodput of {:.1f} %",
                       b.step_days, b.days, group_digits(std::llround(b.device_hours)), 100 * b.goodput));
  line("", fmt::format("in 28 days: {:.0f} devices like these", std::ceil(b.devices_for_a_month)));
  if (b.price > 0)
    line("", fmt::format("at the price of the cluster file: {}", group_digits(std::llround(b.price))));
  line("checkpoints",
       fmt::format("training stops for {} each; {} to write; best every {} steps",
                   format_seconds(b.checkpoint_pause), format_seconds(b.checkpoint_write), b.interval_steps));
  if (b.reads.pages > 0)
    line("reads", fmt::format("{:.0f} a second of a node; steps shorter than {} would wait for storage",
                              b.reads.per_second, format_seconds(b.reads.break_even)));
  return text;
}

}  // namespace ingot
