// See advice.h.
#include "plan/advice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "plan/op_cost.h"
#include "report/table.h"
#include "train/memory_policy.h"

namespace ingot {
namespace {

/// What is less than this share of the step or of the memory is no gain.
constexpr double kGain = 0.005;

std::string list_of(const std::vector<std::string>& names) {
  return names.empty() ? "[]" : fmt::format("[\"{}\"]", fmt::join(names, "\", \""));
}

template <class... Args>
std::string parallel(fmt::format_string<Args...> text, Args&&... args) {
  return "--parallel." + fmt::format(text, std::forward<Args>(args)...);
}

struct Price {
  int64_t bytes = 0;
  RunTime time;
};

Price price_of(const Recipe& recipe, int ranks, const Cluster& cluster, const TimeFor& what) {
  const RunPlan plan = plan_stages(recipe, ranks);
  Price p{.time = time_run(plan, cluster, what)};
  for (const RankClass& c : plan.classes) p.bytes = std::max(p.bytes, c.plan.memory.on_device());
  return p;
}

std::vector<Advice::Limit> limits_of(const Price& p, int64_t capacity) {
  const StepTime& step = p.time.step;
  const RankTime& r = step.ranks[static_cast<size_t>(step.critical)];
  std::vector<Advice::Limit> limits = {
      {"memory", static_cast<double>(p.bytes) / static_cast<double>(capacity)},
      {"pipeline", r.bubble / step.seconds},
      {"launches", p.time.launch_share * (step.seconds - r.bubble) / step.seconds}};
  for (int i = 0; i < kTimesOf; ++i)
    limits.push_back({name_of(static_cast<TimeOf>(i)), r.busy[static_cast<size_t>(i)] / step.seconds});
  for (const auto& [channel, seconds] : r.exposed)
    limits.push_back({channel + " ranks", seconds / step.seconds});
  std::erase_if(limits, [](const Advice::Limit& l) { return l.share < kGain; });
  std::stable_sort(limits.begin(), limits.end(),
                   [](const auto& a, const auto& b) { return a.share > b.share; });
  return limits;
}

/// One phase of a recipe, with a device's memory as the limit.
Recipe planned(const Recipe& recipe, const std::string& phase) {
  Recipe one = phase.empty() ? recipe : only_phase(recipe, phase);
  one.memory.limit.clear();
  return one;
}

}  // namespace

std::vector<Remedy> possible_remedies(const Recipe& recipe, const std::string& phase, int ranks,
                                      const Cluster& cluster) {
  const ParallelConfig& p = recipe.parallel;
  const OptimizerConfig& o = recipe.optimizer;
  const MemoryConfig& m = recipe.memory;
  const int64_t experts = recipe.model.moe.experts;
  const int64_t inside = cluster.links.empty() ? 0 : cluster.links.front().ranks,
                domain = inside > 0 ? inside : ranks;
  std::vector<Remedy> all;
  const auto add = [&](const char* limit, std::vector<std::string> fields, const char* cost) {
    all.push_back({.limit = limit, .fields = std::move(fields), .cost = cost});
  };

  const auto s = std::find_if(recipe.phases.begin(), recipe.phases.end(),
                              [&](const PhaseConfig& of) { return of.name == phase; });
  const auto rows = [&](int64_t n) {
    return fmt::format("--phases.{}.micro_batch={}", s - recipe.phases.begin(), n);
  };
  if (s->micro_batch > 0) add("products", {rows(2 * s->micro_batch)}, "larger products, fewer launches");
  if (s->micro_batch != 1)
    add("memory", {rows(std::max<int64_t>(1, s->micro_batch / 2))}, "smaller products");

  if (p.tensor > 1)
    add("tensor ranks",
        {parallel("tensor={}", p.tensor / 2), parallel("sequence={}", p.sequence && p.tensor > 2)},
        "fewer exchanges in each layer, larger products");
  if (2 * p.tensor <= std::min<int64_t>(domain, ranks))
    add("memory", {parallel("tensor={}", 2 * p.tensor), parallel("sequence=true")},
        "more exchanges in each layer, smaller products");
  if (p.tensor > 1 && !p.sequence) add("memory", {parallel("sequence=true")}, "rows are sharded");

  const auto stages = [&](int64_t count, int64_t chunks) {
    std::vector<std::string> fields = {parallel("pipeline={}", count), parallel("chunks={}", chunks),
                                       parallel("schedule={}", chunks > 1 ? "interleaved" : "1f1b")};
    if (!p.layout.empty()) fields.push_back(parallel("layout="));
    return fields;
  };
  if (p.pipeline > 1) {
    add("pipeline", stages(p.pipeline / 2, p.pipeline == 2 ? 1 : p.chunks), "fewer stages to wait for");
    add("pipeline", stages(p.pipeline, 2 * p.chunks), "shorter waits, more messages, more in flight");
    if (p.layout.empty() && p.chunks == 1 && p.schedule != PipelineScheduleKind::zero_bubble)
      add("pipeline", {parallel("schedule=zero_bubble")}, "gradients of weights fill the waits");
  }
  if (2 * p.pipeline * p.chunks <= recipe.model.layers)
    add("memory", stages(2 * p.pipeline, p.chunks), "more stages to wait for");

  if (experts > 0 && p.expert > 1) {
    add("expert ranks", {parallel("expert={}", p.expert / 2)}, "fewer rows leave their rank");
    if (!p.dispatch_bf16) add("expert ranks", {parallel("dispatch_bf16=true")}, "rows are rounded to bf16");
    if (p.schedule != PipelineScheduleKind::merged)
      add("expert ranks", {parallel("schedule=merged"), parallel("chunks=1")},
          "exchanges run beside another micro-batch's kernels");
    if (p.dispatch != DispatchKind::hierarchical && p.expert > domain)
      add("expert ranks", {parallel("dispatch=hierarchical"), parallel("node_ranks={}", domain)},
          "a row is sent once to each node");
    if (p.dispatch_capacity == 0)
      add("memory", {parallel("dispatch_capacity=2")}, "more rows than twice an even routing's are an error");
  }
  if (experts > 0 && 2 * p.expert <= std::min<int64_t>(experts, ranks))
    add("memory", {parallel("expert={}", 2 * p.expert)}, "more rows leave their rank");

  if (p.context > 1) {
    add("context ranks", {parallel("context={}", p.context / 2)}, "fewer exchanges in each layer");
    for (const ContextForm form : {ContextForm::heads, ContextForm::gather, ContextForm::ring})
      if (form != p.context_form)
        add("context ranks", {parallel("context_form={}", name_of(form))}, "other exchanges for attention");
  }

  const bool whole = p.shard == ShardLevel::none, full = p.shard == ShardLevel::full;
  if (!whole) add("data ranks", {parallel("shard=none")}, "each rank has all of its state");
  if (p.shard != ShardLevel::optimizer)
    add(full ? "data ranks" : "memory", {parallel("shard=optimizer")},
        "state is sharded, new weights are exchanged");
  if (!full) add("memory", {parallel("shard=full")}, "weights are gathered in every pass");
  if (full && p.shard_ranks == 0 && domain < ranks)
    add("data ranks", {parallel("shard_ranks={}", domain)}, "weights are gathered inside a node");
  if (!full && !p.measures_bucket()) add("data ranks", {parallel("bucket=100MiB")}, "fewer, longer sums");
  if (!whole && !p.whole_matrices && o.groups.matrices == "muon")
    add("data ranks", {parallel("whole_matrices=true")}, "Muon exchanges no matrices, shares are less even");

  if (!m.recompute.empty()) add("other kernels", {"--memory.recompute=[]"}, "nothing runs forward twice");
  if (m.fp8.empty() && m.recompute.empty())
    add("memory", {"--memory.fp8=" + list_of({"activation", "add_norm.h"})},
        "inputs of products are rounded");
  std::vector<std::string> recompute, offload = m.offload;
  for (const PolicyLevel& level : policy_levels()) {
    add_names(recompute, level.recompute);
    add_names(offload, level.offload);
    if (!level.offload.empty())
      add("memory", {"--memory.offload=" + list_of(offload)}, level.cost);
    else if (recompute != m.recompute)
      add("memory", {"--memory.recompute=" + list_of(recompute)}, level.cost);
  }

  if (o.first_moment == ValueStorage::f32)
    add("memory", {"--optimizer.first_moment=bf16", "--optimizer.second_moment=bf16"},
        "moments are rounded to bf16");
  // The others are for whole weights.
  if (whole && o.gradient == ValueStorage::f32 && p.pipeline == 1)
    add("memory", {"--optimizer.gradient=bf16"}, "gradients are rounded to bf16 once a micro-batch");
  if (whole && o.master == ValueStorage::f32)
    add("memory", {"--optimizer.master=bf16_stochastic"}, "weights are rounded to bf16 by chance");
  return all;
}

Advice advise(const std::function<Recipe(const std::vector<std::string>& fields)>& recipe_with,
              const std::string& phase, int ranks, const Cluster& cluster, const TimeFor& what) {
  const Recipe base = recipe_with({});
  const std::string name =
      phase.empty() ? plan_stages(planned(base, ""), ranks).classes.front().plan.phase : phase;
  const Price now = price_of(planned(base, name), ranks, cluster, what);
  Advice a{.bytes = now.bytes, .capacity = cluster.device_bytes(), .step_seconds = now.time.step.seconds};
  a.tokens_per_second = now.time.tokens_per_second;
  a.limits = limits_of(now, a.capacity);
  const bool fits = a.bytes <= a.capacity;
  for (Remedy& r : possible_remedies(base, name, ranks, cluster)) {
    try {
      const Price p = price_of(planned(recipe_with(r.fields), name), ranks, cluster, what);
      r.bytes = p.bytes, r.step_seconds = p.time.step.seconds;
      r.tokens_per_second = p.time.tokens_per_second;
    } catch (const Error& e) {
      r.refused = e.what();
      std::replace(r.refused.begin(), r.refused.end(), '\n', ' ');
      a.others.push_back(std::move(r));
      continue;
    }
    const bool faster = !fits || r.tokens_per_second > (1 + kGain) * a.tokens_per_second;
    if (r.bytes <= a.capacity && faster)
      a.faster.push_back(std::move(r));
    else if (static_cast<double>(r.bytes) < (1 - kGain) * static_cast<double>(a.bytes))
      a.smaller.push_back(std::move(r));
    else
      a.others.push_back(std::move(r));
  }
  std::stable_sort(a.faster.begin(), a.faster.end(), [](const Remedy& x, const Remedy& y) {
    return x.tokens_per_second > y.tokens_per_second;
  });
  std::stable_sort(a.smaller.begin(), a.smaller.end(),
                   [](const Remedy& x, const Remedy& y) { return x.bytes < y.bytes; });
  return a;
}

namespace {

Table remedy_table(const Advice& a, const std::vector<Remedy>& remedies, const std::string& title) {
  Table table({words("against", "against"), words("fields", "fields"), number("speed %", 1),
               number("GB", 1, 1e-9), words("how", "cost")},
              title);
  for (const Remedy& r : remedies) {
    const double speed = 100 * (r.tokens_per_second / a.tokens_per_second - 1);
    const auto bytes = static_cast<double>(r.bytes - a.bytes);
    table.add({r.limit, fmt::format("{}", fmt::join(r.fields, " ")), speed, bytes, r.cost});
  }
  return table;
}

}  // namespace

std::string to_text(const Advice& a) {
  std::string text =
      fmt::format("{} a step, {:.0f} tokens/s a device; the fullest rank needs {} of a device's {}\nlimits:",
                  format_seconds(a.step_seconds), a.tokens_per_second,
                  format_bytes(static_cast<double>(a.bytes)), format_bytes(static_cast<double>(a.capacity)));
  for (size_t i = 0; i < a.limits.size(); ++i)
    text += fmt::format("{} {} {:.1f} %", i == 0 ? "" : ",", a.limits[i].name, 100 * a.limits[i].share);
  text += "\n" + text_of({remedy_table(a, a.faster, a.bytes <= a.capacity ? "faster" : "what fits"),
                          remedy_table(a, a.smaller, "less memory")});
  if (a.bytes > a.capacity && a.faster.empty())
    text += "no change alone makes it fit; --search looks for all layouts together\n";
  for (const Remedy& r : a.others) {
    const double speed = 100 * (r.tokens_per_second / a.tokens_per_second - 1);
    text += fmt::format("not {}: {}\n", fmt::join(r.fields, " "),
                        !r.refused.empty() ? r.refused
                        : r.bytes > a.capacity
                            ? fmt::format("needs {}", format_bytes(static_cast<double>(r.bytes)))
                            : fmt::format("{:+.1f} % speed, no less memory", speed));
  }
  return text;
}

std::string to_json(const Advice& a) {
  using Json = nlohmann::ordered_json;
  const auto rows = [](const std::vector<Remedy>& remedies) {
    Json list = Json::array();
    for (const Remedy& r : remedies) {
      Json j{{"against", r.limit}, {"fields", r.fields}, {"cost", r.cost}};
      if (r.refused.empty())
        j["bytes"] = r.bytes, j["step_seconds"] = r.step_seconds,
        j["tokens_per_second_per_device"] = r.tokens_per_second;
      else
        j["refused"] = r.refused;
      list.push_back(std::move(j));
    }
    return list;
  };
  Json limits = Json::object();
  for (const Advice::Limit& l : a.limits) limits[l.name] = l.share;
  return Json{{"bytes", a.bytes},
              {"device_bytes", a.capacity},
              {"step_seconds", a.step_seconds},
              {"tokens_per_second_per_device", a.tokens_per_second},
              {"limits", limits},
              {"faster", rows(a.faster)},
              {"smaller", rows(a.smaller)},
              {"others", rows(a.others)}}
      .dump(2);
}

}  // namespace ingot
