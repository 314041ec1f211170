// A plan of all ranks for a terminal and as JSON. See run_plan.h.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/progress.h"
#include "plan/run_plan.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPerGiB = 1.0 / (1 << 30);

/// "0-15, 64": neighbouring ranks as ranges.
std::string ranges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end > i + 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text.size() > 24 ? fmt::format("{}, ... ({})", text.substr(0, text.find(',')), ranks.size()) : text;
}

/// One rank: every number that the table rounds, and what the table leaves out.
std::string rank_text(const RankPlan& r, int rank) {
  std::string text =
      fmt::format("  rank {}: stage {}, {} parameters, {} micro-batches of a step of phase '{}'\n", rank,
                  r.stage, group_digits(r.parameters), r.micro_batches, r.phase);
  for (const auto& [name, bytes] : parts_of(r.memory))
    text += fmt::format("    {:<12} {:>20} bytes  {:>10.2f} GiB\n", name, group_digits(bytes),
                        static_cast<double>(bytes) * kPerGiB);
  int64_t peak = 0;
  for (const auto& [segment, bytes] : r.slab_by_segment) peak += bytes;
  std::string parts;
  for (const auto& [segment, bytes] : r.slab_by_segment)
    if (bytes > 0)
      parts += fmt::format("{}{} {:.1f} %", parts.empty() ? "" : ", ", segment,
                           100 * static_cast<double>(bytes) / static_cast<double>(peak));
  if (!parts.empty()) text += "    activations at their peak: " + parts + "\n";
  text += fmt::format(
      "    a step: {:.1f} TFLOP in products, {:.1f} in attention, {:.2f} else, {:.2f} in the optimizer\n",
      r.work.products * 1e-12, r.work.attention * 1e-12, r.work.other * 1e-12, r.work.optimizer * 1e-12);
  for (const auto& [op, bytes] : r.work.wire_bytes)
    text += fmt::format("    sent by {}: {:.2f} GB\n", op, bytes * 1e-9);
  return text;
}

Json rank_json(const RankPlan& r) {
  Json memory;
  for (const auto& [name, bytes] : parts_of(r.memory)) {
    std::string key = name;
    std::replace(key.begin(), key.end(), ' ', '_');
    memory[key] = bytes;
  }
  return {{"rank", r.rank},
          {"stage", r.stage},
          {"phase", r.phase},
          {"parameters", r.parameters},
          {"micro_batches", r.micro_batches},
          {"memory", memory},
          {"activations_at_peak", r.slab_by_segment},
          {"flops",
           {{"products", r.work.products},
            {"attention", r.work.attention},
            {"other", r.work.other},
            {"optimizer", r.work.optimizer},
            {"model", r.work.model_flops}}},
          {"wire_bytes", r.work.wire_bytes}};
}

}  // namespace

Table class_table(const RunPlan& plan) {
  std::vector<Column> columns = {words("ranks"), number("stage", 0)};
  for (const auto& [name, bytes] : parts_of({})) columns.push_back(number(name, 2, kPerGiB));
  columns.back().title += " GiB";
  columns.insert(columns.end(), {number("TFLOP", 2, 1e-12), number("GB sent", 2, 1e-9)});
  Table table(std::move(columns));
  for (const RankClass& c : plan.classes) {
    std::vector<Cell> row = {ranges(c.ranks), static_cast<double>(c.plan.stage)};
    for (const auto& [name, bytes] : parts_of(c.plan.memory)) row.emplace_back(static_cast<double>(bytes));
    double wire = 0;
    for (const auto& [op, bytes] : c.plan.work.wire_bytes) wire += bytes;
    row.insert(row.end(), {c.plan.work.flops(), wire});
    table.add(std::move(row));
  }
  return table;
}

std::string to_text(const RunPlan& plan, int rank) {
  const auto tokens = static_cast<double>(plan.tokens());
  std::string text;
  const auto line = [&](const char* name, const std::string& value) { text += named_line(name, value); };
  line("model", fmt::format("{} parameters ({}), {} active per token",
                            format_count(static_cast<double>(plan.parameters.total)),
                            group_digits(plan.parameters.total),
                            format_count(static_cast<double>(plan.parameters.active))));
  const char* name = "ranks";
  for (const std::string& words : plan.layout) line(std::exchange(name, ""), words);
  line("work", fmt::format("{:.1f} GFLOP a token of the model, {:.1f} as run; {} tokens a step, {} a rank",
                           plan.model_flops / tokens * 1e-9, plan.flops / tokens * 1e-9,
                           group_digits(plan.tokens()), group_digits(plan.tokens() / plan.what.ranks)));
  line("checkpoint",
       fmt::format("{} of all ranks", format_bytes(static_cast<double>(plan.checkpoint_bytes))));
  text += "  memory by rank, GiB; work and messages of a step:\n";
  text += class_table(plan).text();
  const RankClass& shown = plan.class_of(rank);
  text += rank_text(shown.plan, rank >= 0 ? rank : shown.ranks.front());
  return text;
}

std::string to_json(const RunPlan& plan) {
  Json classes = Json::array();
  for (const RankClass& c : plan.classes)
    classes.push_back({{"ranks", c.ranks}, {"plan", rank_json(c.plan)}});
  return Json{{"ranks", plan.what.ranks},
              {"imbalance", plan.what.supposed.imbalance},
              {"document_tokens", plan.what.supposed.document_tokens},
              {"tokens_per_step", plan.tokens()},
              {"parameters", plan.parameters.total},
              {"active_parameters", plan.parameters.active},
              {"model_flops", plan.model_flops},
              {"flops", plan.flops},
              {"checkpoint_bytes", plan.checkpoint_bytes},
              {"layout", plan.layout},
              {"warnings", plan.warnings},
              {"classes", classes}}
      .dump(2);
}

}  // namespace ingot
