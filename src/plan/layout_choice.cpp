// See layout_choice.h.
#include "plan/layout_choice.h"

#include <algorithm>
#include <map>

#include "train/memory_policy.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> d;
  for (int64_t i = 1; i <= std::min(n, most); ++i)
    if (n % i == 0) d.push_back(i);
  return d;
}

/// What of a stage decides which kernels it runs: parts of the model, chunk by chunk. The order of layers in
/// a chunk does not count.
std::string kernels_of(const PipelineLayout& layout, int rank, const ModelConfig& model) {
  std::string text;
  for (int chunk = 0; chunk < layout.chunks(); ++chunk) {
    const StageParts& parts = layout.at(rank, chunk);
    std::map<std::string, int> layers;
    for (int64_t l = parts.first_layer; l < parts.first_layer + parts.layers; ++l)
      ++layers[fmt::format("{}{}{}{}w{}", model.is_moe(l) ? "m" : "d", model.attends(l) ? "a" : "",
                           model.value_table(l) >= 0 ? "v" : "", model.rotary_of(l).dims,
                           model.window_of(l))];
    text += fmt::format("|{}{}{}", parts.embedding ? "E" : "", parts.modules, parts.loss ? "L" : "");
    for (const auto& [layer, count] : layers) text += fmt::format(" {} {}", count, layer);
  }
  return text;
}

}  // namespace

std::vector<LayoutChoice> all_choices(const Recipe& recipe, int ranks, const Cluster& cluster) {
  std::vector<LayoutChoice> all;
  const int64_t domain =
      cluster.links.empty() || cluster.links.front().ranks == 0 ? ranks : cluster.links.front().ranks;
  for (const int64_t t : divisors(ranks, std::min<int64_t>(domain, 16)))
    for (const int64_t p : divisors(ranks / t, 16))
      for (const int64_t v : {1, 2, 4})
        for (const int64_t e : divisors(std::max<int64_t>(1, recipe.model.moe.experts), 64))
          for (const int64_t micro : {1, 2, 3, 4, 6, 8})
            for (const ShardLevel shard : {ShardLevel::none, ShardLevel::optimizer, ShardLevel::full})
              if ((p > 1 || v == 1) && p * v <= recipe.model.layers)
                all.push_back({t, p, v, e, shard, micro});
  return all;
}

int64_t recompute_levels() {
  return std::count_if(policy_levels().begin(), policy_levels().end(),
                       [](const PolicyLevel& l) { return l.offload.empty(); });
}

std::string balanced_layout(const ModelConfig& model, const PartTimes& times, int64_t ranks, int64_t chunks) {
  const auto stages = static_cast<size_t>(ranks * chunks);
  const double all =
      static_cast<double>(model.layers) * times.layer + times.embedding + times.modules + times.loss;
  // Modules and loss together may be long for a chunk, and no layer follows a module.
  const bool apart =
      chunks > 1 && times.modules > 0 && times.modules + times.loss > all / static_cast<double>(stages);
  const size_t with_modules = apart ? stages - 2 : stages - 1, most = apart ? stages - 1 : stages;
  std::vector<double> load(stages), of_rank(static_cast<size_t>(ranks));
  std::vector<int64_t> layers(stages);
  const auto add = [&](size_t stage, double seconds) {
    load[stage] += seconds, of_rank[stage % of_rank.size()] += seconds;
  };
  add(0, times.embedding), add(with_modules, times.modules), add(stages - 1, times.loss);
  const auto is_before = [&](size_t a, size_t b) {
    const double x = of_rank[a % of_rank.size()], y = of_rank[b % of_rank.size()];
    return x != y ? x < y : load[a] != load[b] ? load[a] < load[b] : a > b;
  };
  for (int64_t l = 0; l < model.layers; ++l) {
    size_t best = 0;
    for (size_t s = 1; s < most; ++s)
      if (is_before(s, best)) best = s;
    add(best, times.layer), ++layers[best];
  }
  std::string text = "E";
  for (size_t s = 0; s < stages; ++s) {
    if (s > 0) text += "|";
    if (layers[s] > 0) text += fmt::format("t*{}", layers[s]);
    if (s == with_modules) text += std::string(static_cast<size_t>(model.mtp.modules()), 'm');
  }
  return text + "L";
}

LayoutCandidate candidate_of(const Recipe& base, const LayoutChoice& choice, const PartTimes& times,
                             int ranks) {
  const auto& [tensor, pipeline, chunks, expert, shard, micro, recompute] = choice;
  LayoutCandidate c{base, {}};
  ParallelConfig& p = c.recipe.parallel;
  p.data = 0;
  p.layout = pipeline > 1 ? balanced_layout(base.model, times, pipeline, chunks) : "";
  p.tensor = tensor, p.sequence = tensor > 1;
  p.pipeline = pipeline, p.chunks = 1, p.expert = expert, p.shard = shard;
  const bool merges = base.parallel.schedule == PipelineScheduleKind::merged && expert > 1;
  p.schedule = merges       ? PipelineScheduleKind::merged
               : chunks > 1 ? PipelineScheduleKind::interleaved
                            : PipelineScheduleKind::one_forward_one_backward;
  if (expert == 1) p.dispatch_capacity = 0, p.dispatch_drop = false, p.dispatch_bf16 = false;
  if (expert == 1 || (p.dispatch == DispatchKind::hierarchical && expert <= p.node_ranks))
    p.dispatch = DispatchKind::all_to_all, p.node_ranks = 0;
  for (PhaseConfig& s : c.recipe.phases) s.micro_batch = micro;
  std::vector<std::string>& again = c.recipe.memory.recompute;
  for (int64_t i = 0; i < recompute; ++i) {
    const PolicyLevel& level = policy_levels()[static_cast<size_t>(i)];
    for (const std::string& name : level.recompute)
      if (std::find(again.begin(), again.end(), name) == again.end()) again.push_back(name);
  }

  // The same in words, as kinds of parallelism and as fields.
  SearchResult::Layout& l = c.layout;
  l.text = fmt::format("data {}", ranks / (tensor * pipeline));
  const auto say = [&](bool is, const std::string& words, const char* kind,
                       const std::vector<std::string>& fields) {
    if (!is) return;
    l.text += words, ++l.kinds;
    if (*kind != '\0') l.family += (l.family.empty() ? "" : " + ") + std::string(kind);
    l.fields.insert(l.fields.end(), fields.begin(), fields.end());
  };
  say(pipeline > 1, fmt::format(" x pipeline {}", pipeline), "pipeline",
      {fmt::format("--parallel.pipeline={}", pipeline)});
  if (chunks > 1) l.text += fmt::format(" (chunks {})", chunks);
  l.fields.push_back(fmt::format("--parallel.schedule={}", name_of(p.schedule)));
  if (base.parallel.chunks > 1) l.fields.emplace_back("--parallel.chunks=1");
  if (p.layout != base.parallel.layout) l.fields.push_back("--parallel.layout=" + p.layout);
  if (p.dispatch != base.parallel.dispatch)
    l.fields.insert(l.fields.end(), {"--parallel.dispatch=all_to_all", "--parallel.node_ranks=0"});
  say(tensor > 1, fmt::format(" x tensor {}", tensor), "tensor",
      {fmt::format("--parallel.tensor={}", tensor), "--parallel.sequence=true"});
  say(expert > 1, fmt::format(", experts over {}", expert), "expert",
      {fmt::format("--parallel.expert={}", expert)});
  say(shard != ShardLevel::none, fmt::format(", shard {}", name_of(shard)),
      shard == ShardLevel::full ? "full sharding" : "sharded state", {});
  l.fields.push_back(fmt::format("--parallel.shard={}", name_of(shard)));
  for (size_t i = 0; i < base.phases.size(); ++i)
    l.fields.push_back(fmt::format("--phases.{}.micro_batch={}", i, micro));
  l.text += fmt::format(", micro-batch {}", micro);
  if (recompute > 0)
    say(true, fmt::format(", recompute {}", recompute), "",
        {fmt::format("--memory.recompute=[\"{}\"]", fmt::join(again, "\", \""))});
  if (l.family.empty()) l.family = "data alone";
  return c;
}

StageKinds::StageKinds(const Recipe& recipe) {
  const PipelineLayout layout = layout_of(recipe.parallel, recipe.model);
  std::vector<std::string> known;
  for (int stage = 0; stage < layout.ranks; ++stage) {
    const std::string signature = kernels_of(layout, stage, recipe.model);
    const auto found = std::find(known.begin(), known.end(), signature);
    kind.push_back(static_cast<size_t>(found - known.begin()));
    if (found == known.end()) known.push_back(signature), first.push_back(stage);
  }
}

}  // namespace ingot
