// See run_layout.h.
#include "train/run_layout.h"

#include <algorithm>
#include <numeric>

#include "base/glob.h"
#include "parallel/pipeline_simulator.h"
#include "train/memory_policy.h"

namespace ingot {

namespace {

/// "parallel.context = 2 x parallel.tensor = 2": the axes that a group of ranks with its own sequences has.
std::string group_axes(const ParallelConfig& p) {
  std::string text;
  for (const auto& [name, size] : {std::pair<const char*, int64_t>{"pipeline", p.pipeline},
                                   {"context", p.context},
                                   {"tensor", p.tensor}})
    if (size > 1) text += fmt::format("{}parallel.{} = {}", text.empty() ? "" : " x ", name, size);
  return text.empty() ? "parallel.tensor = 1" : text;
}

}  // namespace

Grid grid_of(const ParallelConfig& p, int ranks) {
  const int64_t others = p.ranks_per_group();
  if (ranks % others != 0)
    throw Error(fmt::format("{} ranks do not divide into groups of {}", ranks, group_axes(p)),
                fmt::format("start a multiple of {}, or change the axes", others));
  const int64_t data = ranks / others;
  if (p.data != 0 && p.data != data)
    throw Error(fmt::format("parallel.data = {} x {} needs {} ranks, but {} {} started", p.data,
                            group_axes(p), p.data * others, ranks, ranks == 1 ? "was" : "were"),
                fmt::format("start that many (mpirun -n {}), or leave parallel.data at 0", p.data * others));
  const bool same_rows = p.tensor > 1 && !p.sequence;  // then tensor ranks compute experts whole
  return Grid({.pp = static_cast<int>(p.pipeline),
               .dp = static_cast<int>(data),
               .cp = static_cast<int>(p.context),
               .tp = static_cast<int>(p.tensor),
               .ep = static_cast<int>(p.expert),
               .etp = static_cast<int>(same_rows ? p.tensor : p.expert_tensor)});
}

namespace {

/// Buckets as large as possible for Muon, so that few of its matrices lie in two shards; they are reduced
/// in parts (parallel/reduction_parts.h).
ShardOptions shards_of(const Recipe& recipe) {
  const ParallelConfig& p = recipe.parallel;
  ShardOptions o{.level = p.shard,
                 .ranks = static_cast<int>(p.shard_ranks),
                 .bucket_bytes = p.measures_bucket() ? 0 : parse_memory(p.bucket, "parallel.bucket"),
                 .whole_tensors = p.whole_matrices};
  const bool together = p.shard == ShardLevel::optimizer && recipe.optimizer.groups.matrices == "muon";
  const bool staged = p.shard == ShardLevel::full || recipe.optimizer.gradient != ValueStorage::f32;
  o.buckets = staged                            ? FlatBuckets::layer_group
              : together || o.bucket_bytes == 0 ? FlatBuckets::tensor_group
                                                : FlatBuckets::bytes;
  return o;
}

}  // namespace

RankOptions rank_options(const Recipe& recipe) {
  const ParallelConfig& p = recipe.parallel;
  return {.sequence_parallel = p.sequence,
          .dispatch = p.dispatch,
          .receive = {p.dispatch_capacity, p.dispatch_drop},
          .bf16_dispatch = p.dispatch_bf16,
          .node_ranks = static_cast<int>(p.node_ranks),
          .context = p.context_form,
          .context_inner = static_cast<int>(p.context_inner),
          .shards = shards_of(recipe)};
}

CommLimits comm_limits(const ParallelConfig& p) {
  return {.report_seconds = p.report_after, .abort_seconds = p.abort_after};
}

PipelineLayout layout_of(const ParallelConfig& p, const ModelConfig& model) {
  const auto ranks = static_cast<int>(p.pipeline);
  if (!p.layout.empty()) return parse_pipeline_layout(p.layout, ranks, model.layers, model.mtp.modules());
  return even_pipeline_layout(ranks, static_cast<int>(p.chunks), model.layers, model.mtp.modules());
}

namespace {

/// Refuses schedules that have no such shape, and pipelines that most ranks would wait for all the time.
void require_micro_batches(const Recipe& recipe, size_t phase, int64_t batch, int64_t micro) {
  const ParallelConfig& p = recipe.parallel;
  const int64_t data = recipe.data_ranks(), count = batch / (data * micro);
  const int chunks = layout_of(p, recipe.model).chunks();
  if (count < p.pipeline)
    throw Error(fmt::format("phase '{}': a batch of {} sequences over {} data ranks is {} micro-batch{} of "
                            "{}, but a pipeline of {} "
                            "stages needs {} at least",
                            recipe.phases[phase].name, batch, data, count, count == 1 ? "" : "es", micro,
                            p.pipeline, p.pipeline),
                fmt::format("lower phases.{}.micro_batch, or raise its batch", phase));
  make_pipeline_schedule(p.schedule, {static_cast<int>(p.pipeline), chunks, static_cast<int>(count)});
}

void require_shares_of_phase(const Recipe& recipe, size_t phase) {
  const PhaseConfig& s = recipe.phases[phase];
  const ParallelConfig& p = recipe.parallel;
  const int64_t data = recipe.data_ranks(), context = p.context;
  for (int64_t level = 0; level < s.levels() && p.pipeline > 1; ++level)
    require_micro_batches(recipe, phase, s.batch_at(level), s.micro_at(level, data));
  const int64_t chunks = context > 1 ? 2 * context : 1, row_ranks = p.sequence ? p.tensor : 1,
                rows = s.sequence / context;
  const std::string remedy = fmt::format("choose phases.{}.sequence as a multiple of {}", phase,
                                         std::lcm(chunks, context * row_ranks));
  if (s.sequence % chunks != 0)
    throw Error(fmt::format("phase '{}': sequences of {} tokens do not divide into {} chunks, two for each "
                            "of {} context ranks",
                            s.name, s.sequence, chunks, context),
                remedy);
  if (rows % row_ranks != 0)
    throw Error(fmt::format("phase '{}': {} tokens of each sequence do not divide among {} tensor ranks, "
                            "which shard their rows",
                            s.name, rows, row_ranks),
                remedy);
}

}  // namespace

void require_shares(const Recipe& recipe) {
  for (size_t i = 0; i < recipe.phases.size(); ++i) require_shares_of_phase(recipe, i);
}

std::vector<std::string> fit_to_ranks(Recipe& recipe, int data_ranks) {
  recipe.parallel.data = data_ranks;
  std::vector<std::string> changes = recipe.fit_batches();
  require_shares(recipe);
  return changes;
}

Recipe on_paper(Recipe recipe) {
  if (recipe.parallel.measures_bucket()) recipe.parallel.bucket = ParallelConfig().bucket;
  return recipe;
}

namespace {

/// Stages, schedule, and how long a rank waits by training phase where a backward takes as long as two
/// forwards.
std::string describe_pipeline(const Recipe& recipe) {
  const ParallelConfig& p = recipe.parallel;
  const PipelineLayout layout = layout_of(p, recipe.model);
  std::string waits;
  for (const PhaseConfig& s : recipe.phases) {
    const int64_t data = recipe.data_ranks();
    const PipelineShape shape{layout.ranks, layout.chunks(),
                              static_cast<int>(s.batch / (data * s.micro(data)))};
    const double bubble = simulate(make_pipeline_schedule(p.schedule, shape), even_costs(shape, {})).bubble();
    waits += fmt::format("{}{:.0f} %", waits.empty() ? "" : ", ", 100 * bubble);
  }
  return fmt::format("pipeline {}, schedule {}: pipeline bubble {} of the compute time", layout.str(),
                     name_of(p.schedule), waits);
}

}  // namespace

std::vector<std::string> describe_layout(const Recipe& recipe) {
  const ParallelConfig& p = recipe.parallel;
  std::vector<std::string> lines;
  std::string text =
      fmt::format("{} = data {}", recipe.data_ranks() * p.ranks_per_group(), recipe.data_ranks());
  if (p.pipeline > 1) text += fmt::format(" x pipeline {}", p.pipeline);
  if (p.context > 1)
    text += fmt::format(" x context {} ({}{})", p.context, name_of(p.context_form),
                        p.context_inner > 1 ? fmt::format(", heads over {}", p.context_inner) : "");
  if (p.tensor > 1)
    text += fmt::format(" x tensor {}{}", p.tensor, p.sequence ? " (with sequence parallelism)" : "");
  lines.push_back(std::move(text));
  if (p.pipeline > 1) lines.push_back(describe_pipeline(recipe));
  static const char* const kShared[] = {"replicated", "sharded", "sharded with weights and gradients"};
  text = p.expert > 1 ? fmt::format("experts over {} ranks ({})", p.expert, name_of(p.dispatch))
                      : "experts replicated";
  if (p.expert_tensor > 1) text += fmt::format(", their width over {}", p.expert_tensor);
  if (recipe.model.moe.experts == 0) text = "no experts";
  lines.push_back(text + fmt::format("; optimizer state {}; memory and time are per rank",
                                     kShared[static_cast<int>(p.shard)]));
  return lines;
}

GroupConfig groups_of_stage(GroupConfig groups, const ParameterTable& table,
                            std::span<const ParamView> held) {
  const auto elsewhere = [&](const std::string& pattern) {
    if (std::any_of(held.begin(), held.end(),
                    [&](const ParamView& p) { return glob_match(pattern, p.name); }))
      return false;
    for (int i = 0; i < table.size(); ++i)
      if (table[i].trainable && glob_match(pattern, table[i].name)) return true;
    return false;
  };
  // Defaults need no match.
  const auto written_for_elsewhere = [&](const std::vector<std::string>& defaults) {
    return [&](const std::string& pattern) {
      return std::find(defaults.begin(), defaults.end(), pattern) == defaults.end() && elsewhere(pattern);
    };
  };
  std::erase_if(groups.not_muon, written_for_elsewhere(GroupConfig::default_not_muon()));
  std::erase_if(groups.no_decay, written_for_elsewhere(GroupConfig::default_no_decay()));
  std::erase_if(groups.rules, [&](const GroupRule& r) { return elsewhere(r.pattern); });
  return groups;
}

}  // namespace ingot
