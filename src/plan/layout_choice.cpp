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
std::string kernels_of(const PipelineLayout& layout, int rank, const ModelConfig& model, bool parity) {
  std::string text;
  for (int chunk = 0; chunk < layout.chunks(); ++chunk) {
    const StageParts& parts = layout.at(rank, chunk);
    std::map<std::string, int> layers;
    for (int64_t l = parts.first_layer; l < parts.first_layer + parts.layers; ++l)
      ++layers[fmt::format("{}{}{}{}{}w{}", parity && l % 2 == 0 ? "e" : "", model.is_moe(l) ? "m" : "d",
                           model.attends(l) ? "a" : "", model.value_table(l) >= 0 ? "v" : "",
                           model.rotary_of(l).dims, model.window_of(l))];
    text += fmt::format("|{}{}{}", parts.embedding ? "E" : "", parts.modules, parts.loss ? "L" : "");
    for (const auto& [layer, count] : layers) text += fmt::format(" {} {}", count, layer);
  }
  return text;
}

/// A layer at a time, to the rank that takes the least time, or to the chunk; there modules and loss, which
/// may be long together, have a stage each, since no layer follows a module.
std::string divided(const PartTimes& times, size_t modules, size_t ranks, size_t chunks, bool by_chunk) {
  std::vector<size_t> layers(ranks * chunks);
  const size_t apart = by_chunk && modules > 0 ? 1 : 0, with_modules = layers.size() - 1 - apart;
  const auto loads = [&] {
    std::vector<double> load(layers.size());
    size_t layer = 0;
    for (size_t s = 0; s < layers.size(); ++s)
      for (size_t n = 0; n < layers[s]; ++n) load[s] += times.layers[layer++];
    load.front() += times.embedding, load[with_modules] += times.modules, load.back() += times.loss;
    return load;
  };
  for (size_t l = 0; l < times.layers.size(); ++l) {
    const std::vector<double> of_stage = loads();
    std::vector<double> of_rank(ranks);
    for (size_t s = 0; s < of_stage.size(); ++s) of_rank[s % ranks] += of_stage[s];
    const auto key = [&](size_t s) {
      const double stage = of_stage[s], rank = of_rank[s % ranks];
      return by_chunk ? std::pair(stage, rank) : std::pair(rank, stage);
    };
    size_t best = 0;
    for (size_t s = 1; s < layers.size() - apart; ++s)
      if (key(s) <= key(best)) best = s;
    ++layers[best];
  }
  std::string text = "E";
  for (size_t s = 0; s < layers.size(); ++s) {
    if (s > 0) text += "|";
    if (layers[s] > 0) text += fmt::format("t*{}", layers[s]);
    if (s == with_modules) text += std::string(modules, 'm');
  }
  return text + "L";
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

std::vector<std::string> balanced_layouts(const PartTimes& times, int64_t modules, int64_t ranks,
                                          int64_t chunks) {
  std::vector<std::string> all;
  PartTimes even = times;
  const double layer = *std::max_element(times.layers.begin(), times.layers.end());
  even.layers.assign(times.layers.size(), layer);
  PartTimes plain = even;
  plain.modules = layer * static_cast<double>(modules);
  for (const PartTimes& t : {times, even, plain})
    for (const bool by_chunk : {false, true}) {
      std::string text = divided(t, static_cast<size_t>(modules), static_cast<size_t>(ranks),
                                 static_cast<size_t>(chunks), by_chunk);
      const bool known = std::find(all.begin(), all.end(), text) != all.end();
      if (!known && (chunks > 1 || !by_chunk)) all.push_back(std::move(text));
    }
  return all;
}

LayoutCandidate candidate_of(const Recipe& base, const LayoutChoice& choice, const std::string& layout,
                             int ranks) {
  const auto& [tensor, pipeline, chunks, expert, shard, micro, recompute] = choice;
  LayoutCandidate c{base, {}};
  ParallelConfig& p = c.recipe.parallel;
  p.data = 0;
  p.layout = pipeline > 1 ? layout : "";
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
  for (int64_t i = 0; i < recompute; ++i) add_names(again, policy_levels()[static_cast<size_t>(i)].recompute);

  // The same in words, as kinds of parallelism and as fields.
  SearchResult::Layout& l = c.layout;
  l.model_ranks = static_cast<int>(tensor * pipeline);
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
  const bool parity = names_even_layers(recipe.memory);
  for (int stage = 0; stage < layout.ranks; ++stage) {
    const std::string text = kernels_of(layout, stage, recipe.model, parity);
    const auto found = std::find(signature.begin(), signature.end(), text);
    kind.push_back(static_cast<size_t>(found - signature.begin()));
    if (found == signature.end()) signature.push_back(text), first.push_back(stage);
  }
}

}  // namespace ingot
