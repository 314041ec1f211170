// See micro_stats.h.
#include "train/micro_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/convert.h"

namespace ingot {
namespace {

void collect(std::span<const float> logprob, std::span<const float> lse, std::span<const int32_t> targets,
             const ObjectiveResult& objective, HeadStats& stats) {
  stats.objective += objective.loss;
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    stats.nll -= logprob[t];
    stats.lse += lse[t];
    ++stats.valid;
  }
}

}  // namespace

ObjectiveResult MicroStats::add_head(const Tensor& targets, const ColumnSpans& columns, HeadStats* head,
                                     std::span<const Tensor> values) const {
  const auto tokens = static_cast<size_t>(targets.numel());
  const auto statistic = [tokens](const Tensor& t) {
    return t.defined() ? std::span(t.as<const float>(), tokens) : std::span<const float>();
  };
  const std::span<const float> logprob = statistic(values[0]), lse = statistic(values[1]);
  const std::span<const int32_t> ids(targets.as<int32_t>(), tokens);
  ObjectiveResult result =
      objective->evaluate({logprob, lse, ids, z_coefficient, statistic(values[2]), columns, batch->baseline});
  if (head != nullptr) {
    collect(logprob, lse, ids, result, *head);
    if (head == stats) count_columns(logprob, result);
  }
  return result;
}

void MicroStats::count_columns(std::span<const float> logprob, const ObjectiveResult& result) const {
  stats->sums.resize(objective->sums.size());
  INGOT_CHECK(result.sums.size() == stats->sums.size(), "an objective names {} sums and returns {}",
              stats->sums.size(), result.sums.size());
  for (size_t i = 0; i < result.sums.size(); ++i) stats->sums[i] += result.sums[i];
  const std::span<const float> recorded = batch->given.recorded;
  const auto* targets = batch->targets.as<int32_t>();
  for (size_t t = 0; t < recorded.size(); ++t) {
    if (targets[t] < 0 || std::isnan(recorded[t])) continue;
    ++stats->compared;
    stats->unequal += std::bit_cast<uint32_t>(recorded[t]) != std::bit_cast<uint32_t>(logprob[t]);
  }
}

void MicroStats::add(const MicroRead& read, std::span<const Tensor> values) const {
  if (read.depth < 0) return add_metric(read.metric, read.layer, values[0]);
  if (read.depth == 0) return void(add_head(batch->targets, batch->given, stats, values));
  const auto module = static_cast<size_t>(read.depth) - 1;
  add_head(batch->mtp.at(module).targets, {}, stats != nullptr ? &stats->mtp.at(module) : nullptr, values);
}

void MicroStats::add_metric(const std::string& name, int64_t layer, const Tensor& value) const {
  if (name == "router_ids") return count_by_source(layer, value);
  const std::vector<double> values = to_doubles(value);
  if (name == "max_attention_logit") {
    auto& largest = stats->attention_logits[layer];
    if (largest.empty()) largest = values;
    for (size_t h = 0; h < values.size(); ++h) largest[h] = std::max(largest[h], values[h]);
    stats->max_attention_logit =
        std::max(stats->max_attention_logit, *std::max_element(values.begin(), values.end()));
  }
  if (name == "router_counts") {
    auto& counts = stats->expert_counts[layer];
    counts.resize(values.size());
    for (size_t e = 0; e < values.size(); ++e) counts[e] += static_cast<int64_t>(values[e]);
  }
  if (name == "residual_rstd" && stats->residual_square.contains(layer))
    for (const double r : values) stats->residual_square[layer] += 1 / (r * r) - model->config().norm_eps;
  if (name == "residual_mean" && stats->residual_square.contains(layer))
    for (const double mean : values) stats->residual_square[layer] += mean * mean;
  if (name == "router_counts_of_all" && running->used()) running->add(layer, values);
  if (name == "router_dropped") stats->dropped_choices += static_cast<int64_t>(values[0]);
  if (name == "router_entropy") stats->router_entropy[layer] += values[0] * static_cast<double>(router_rows);
}

/// Adds each choice of an expert to the counts of its row's source.
void MicroStats::count_by_source(int64_t layer, const Tensor& ids_TK) const {
  const auto found = stats->source_expert_counts.find(layer);
  if (found == stats->source_expert_counts.end()) return;
  const int64_t experts = model->config().moe.experts, rows = ids_TK.dim(0), choices = ids_TK.dim(1);
  const auto* ids = ids_TK.as<int32_t>();
  const auto* sources = batch->sources.as<int32_t>();
  for (int64_t i = 0; i < rows * choices; ++i) {
    const int64_t row = first_router_row + i / choices;
    if (ids[i] >= 0 && ids[i] < experts)
      ++found->second[static_cast<size_t>(sources[row] * experts + ids[i])];
  }
}

}  // namespace ingot
