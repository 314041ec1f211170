// See step_log.h.
#include "train/step_log.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/clock.h"
#include "base/process_memory.h"

namespace ingot {
namespace {

void add_router_metrics(MetricRow& row, const StepStats& stats, std::span<const std::string> sources) {
  double dead = 0;
  int64_t choices = 0;
  for (const auto& [layer, counts] : stats.expert_counts) {
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    choices += total;
    std::vector<double> load;
    for (const int64_t n : counts) {
      load.push_back(total > 0 ? static_cast<double>(n) / static_cast<double>(total) : 0);
      dead += n == 0;
    }
    row.set(fmt::format("router/{}/load", layer), std::move(load));
    row.set(fmt::format("router/{}/entropy", layer),
            normalized_load_entropy(counts, static_cast<int64_t>(counts.size())));
  }
  for (const auto& [layer, counts] : stats.source_expert_counts) {
    const size_t experts = stats.expert_counts.at(layer).size();
    for (size_t begin = 0; begin < counts.size(); begin += experts) {
      std::vector<double> load(counts.begin() + static_cast<std::ptrdiff_t>(begin),
                               counts.begin() + static_cast<std::ptrdiff_t>(begin + experts));
      const double total = std::accumulate(load.begin(), load.end(), 0.0);
      if (total == 0) continue;  // the batch has nothing of this source
      for (double& share : load) share /= total;
      row.set(fmt::format("router/{}/load_of_{}", layer, sources[begin / experts]), std::move(load));
    }
  }
  if (stats.expert_counts.empty()) return;
  row.set("dead_experts", dead);
  if (stats.dropped_choices > 0)
    row.set("router/dropped", static_cast<double>(stats.dropped_choices) / static_cast<double>(choices));
}

/// Mean update-to-weight ratio by optimizer.
void add_update_ratios(MetricRow& row, const Optimizer& optimizer) {
  for (const std::string& name : optimizer_names()) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < optimizer.groups().size(); ++i)
      if (optimizer.groups()[i].optimizer == name && optimizer.update_stats()[i].weight_rms > 0)
        sum += optimizer.update_stats()[i].ratio(), ++count;
    if (count > 0) row.set("update_ratio/" + name, sum / count);
  }
}

/// "attention" for "layers.3.attention.qkv.weight"; "embed" for "embed.weight".
std::string module_of(const std::string& parameter) {
  size_t begin = 0;
  if (parameter.starts_with("layers.")) begin = parameter.find('.', 7) + 1;
  return parameter.substr(begin, parameter.find('.', begin) - begin);
}

/// The gradient's norm and the weights' root mean square by module.
void add_module_metrics(MetricRow& row, const GradNorm& norm, const TrainEngine& engine) {
  const ParameterTable& table = engine.model().decoder().table();
  const double whole = std::accumulate(norm.sum_squares.begin(), norm.sum_squares.end(), 0.0);
  std::map<std::string, double> squares;
  for (int i = 0; i < table.size(); ++i)
    if (table[i].trainable) squares[module_of(table[i].name)] += norm.sum_squares[static_cast<size_t>(i)];
  for (const auto& [module, square] : squares)
    row.set("grad_norm/" + module, whole > 0 ? norm.norm * std::sqrt(square / whole) : 0);
  const auto params = engine.optimizer().params();
  const auto stats = engine.optimizer().update_stats();
  for (size_t i = 0; i < params.size(); ++i)
    if (module_of(params[i].name) == "embed") row.set("embedding_rms", stats[i].weight_rms);
}

void add_batch_metrics(MetricRow& row, const data::Batch& batch) {
  const data::BatchDiversity diversity = data::diversity(batch);
  row.set("batch/documents", static_cast<double>(diversity.documents));
  row.set("batch/largest_document", diversity.largest_share);
  row.set("batch/document_tokens", diversity.span_tokens);
}

}  // namespace

MetricRow step_row(const DoneStep& done, const data::Batch& batch, const StepOutcome& outcome,
                   const TapeProfile& profile, const TrainEngine& engine,
                   std::span<const std::string> sources) {
  const StepStats& stats = outcome.stats;
  const auto tokens = static_cast<double>(batch.rows * batch.sequence_length);
  MetricRow row;
  row.step = done.step;
  row.wall = wall_seconds();
  row.set("loss", stats.loss());
  if (batch.divisor > 0) row.set("objective", stats.objective / batch.divisor);
  if (stats.compared > 0) row.set("unequal", static_cast<double>(stats.unequal));
  row.set("lr", done.lr);
  row.set("batch", static_cast<double>(batch.rows));
  row.set("grad_norm", outcome.norm.norm);
  row.set("tokens", static_cast<double>(done.tokens));
  row.set("tokens_per_second", tokens / done.seconds);
  row.set("percent_of_roofline", 100 * done.roofline_seconds / done.seconds);
  row.set("step_seconds", done.seconds);
  row.set("data_wait_seconds", done.wait_seconds);
  if (done.save_seconds) row.set("checkpoint/seconds", *done.save_seconds);
  row.set("memory_bytes", static_cast<double>(peak_resident_bytes()));
  row.set("memory_plan_misses", static_cast<double>(engine.plan_misses()));
  for (size_t k = 0; k < stats.mtp.size(); ++k)
    row.set(fmt::format("loss_ahead_{}", k + 1), stats.mtp[k].loss());
  row.set("log_z", stats.valid > 0 ? stats.lse / static_cast<double>(stats.valid) : 0);
  row.set("attention_logit_max", stats.max_attention_logit);
  if (engine.clips_attention()) row.set("qk_clipped_heads", static_cast<double>(outcome.clipped_heads));
  add_module_metrics(row, outcome.norm, engine);
  if (!batch.origins.empty()) add_batch_metrics(row, batch);
  for (const auto& [layer, square] : stats.residual_square)
    if (square > 0) row.set(fmt::format("residual/{}/rms", layer), std::sqrt(square));
  add_router_metrics(row, stats, sources);
  if (engine.recipe().model.moe.sees_future_tokens()) row.set("sees_future_tokens", 1.0);
  add_update_ratios(row, engine.optimizer());
  for (const auto& [op, p] : profile) row.set("time/" + op, p.seconds[0] + p.seconds[1] + p.seconds[2]);
  row.set("time/optimizer", outcome.update_seconds);
  return row;
}

std::string step_line(const MetricRow& row, int64_t total_steps, double left) {
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  grad {:.2f}  lr {:.2e}  {} tok/s  {:.0f}% of roofline  {}",
                  row.step, total_steps, *row.scalar("loss"), *row.scalar("grad_norm"), *row.scalar("lr"),
                  format_count(*row.scalar("tokens_per_second")), *row.scalar("percent_of_roofline"),
                  format_bytes(*row.scalar("memory_bytes")));
  if (const double* reward = row.scalar("rl/reward"))
    line += fmt::format("  reward {:.3f}  length {:.0f}", *reward, *row.scalar("rl/length"));
  if (row.step < total_steps) line += fmt::format("  {} left", format_seconds(left));
  for (const auto& [name, value] : row.scalars)
    if (name.starts_with("val/") && (name.ends_with("/loss") || name.ends_with("/bits_per_byte")))
      line += fmt::format("  {} {:.4f}", name, value);
  if (row.scalar("sees_future_tokens") != nullptr) line += "  (losses see later tokens)";
  return line;
}

StepLog::StepLog(int64_t every, int64_t total_steps, double now)
    : every_(every), total_(total_steps), one_a_minute_(every == 0), last_line_(now), speed_(now) {
  if (every > 0) return;
  every_ = 1;
  for (int64_t more : {2, 5, 10})  // 1, 2, 5, 10, 20, 50, ...
    if (total_steps > 100 * every_) every_ = more;
  while (total_steps > 100 * every_) every_ *= 10;
}

bool StepLog::add(const MetricRow& row, double now) {
  speed_.add(now, 1);
  const bool validated = std::any_of(row.scalars.begin(), row.scalars.end(),
                                     [](const auto& s) { return s.first.rfind("val/", 0) == 0; });
  const bool due = counted_++ == 0 || validated || row.step == total_ || row.step % every_ == 0 ||
                   (one_a_minute_ && now - last_line_ >= 60);
  if (due) last_line_ = now;
  return due;
}

double StepLog::left(int64_t step) const {
  const double speed = speed_.per_second();
  return speed > 0 ? static_cast<double>(total_ - step) / speed : 0;
}

}  // namespace ingot
