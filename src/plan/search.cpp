// See search.h.
#include "plan/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/progress.h"
#include "plan/op_cost.h"
#include "report/table.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

using Layout = SearchResult::Layout;

constexpr double kTie = 0.01;
constexpr size_t kShown = 10;

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> d;
  for (int64_t i = 1; i <= std::min(n, most); ++i)
    if (n % i == 0) d.push_back(i);
  return d;
}

struct Candidate {
  Recipe recipe;
  Layout layout;
};

/// One way to divide the ranks.
struct Axes {
  int64_t tensor = 1, pipeline = 1, chunks = 1, expert = 1;
};

/// Every division, in a fixed order: tensor ranks in an innermost domain, at most 16 stages.
std::vector<Axes> all_axes(const Recipe& recipe, int ranks, const Cluster& cluster) {
  std::vector<Axes> axes;
  const int64_t domain =
      cluster.links.empty() || cluster.links.front().ranks == 0 ? ranks : cluster.links.front().ranks;
  for (const int64_t t : divisors(ranks, std::min<int64_t>(domain, 16)))
    for (const int64_t p : divisors(ranks / t, 16))
      for (const int64_t v : {1, 2, 4})
        for (const int64_t e : divisors(std::max<int64_t>(1, recipe.model.moe.experts), 64))
          if ((p > 1 || v == 1) && p * v <= recipe.model.layers) axes.push_back({t, p, v, e});
  return axes;
}

std::string name_of_family(const Recipe& r) {
  std::string name;
  const auto add = [&](bool is, const char* kind) {
    if (is) name += (name.empty() ? "" : " + ") + std::string(kind);
  };
  add(r.parallel.pipeline > 1, "pipeline");
  add(r.parallel.tensor > 1, "tensor");
  add(r.parallel.expert > 1, "expert");
  add(r.parallel.shard == ShardLevel::optimizer, "sharded state");
  add(r.parallel.shard == ShardLevel::full, "full sharding");
  return name.empty() ? "data alone" : name;
}

/// Makes a candidate of the recipe; the recipe's own checks throw where it cannot be.
Candidate candidate_of(const Recipe& base, const Axes& a, ShardLevel shard, int64_t micro, bool recompute,
                       int ranks) {
  Candidate c{base, {}};
  ParallelConfig& p = c.recipe.parallel;
  p.data = 0, p.layout.clear();
  p.tensor = a.tensor, p.sequence = a.tensor > 1;
  p.pipeline = a.pipeline, p.chunks = a.chunks, p.expert = a.expert, p.shard = shard;
  p.schedule =
      a.chunks > 1 ? PipelineScheduleKind::interleaved : PipelineScheduleKind::one_forward_one_backward;
  if (a.expert == 1) p.dispatch_capacity = 0, p.dispatch_drop = false;
  if (a.expert == 1) p.dispatch = DispatchKind::all_to_all, p.dispatch_bf16 = false;
  for (PhaseConfig& s : c.recipe.phases) s.micro_batch = micro;
  if (recompute) c.recipe.memory.recompute = {"activation", "add_norm.h"};
  Layout& l = c.layout;
  const auto field = [&](const std::string& text) { l.fields.push_back("--parallel." + text); };
  l.text = fmt::format("data {}", ranks / (a.tensor * a.pipeline));
  if (a.pipeline > 1)
    field(fmt::format("pipeline={}", a.pipeline)), l.text += fmt::format(" x pipeline {}", a.pipeline);
  if (a.chunks > 1) {
    field(fmt::format("chunks={}", a.chunks)), field("schedule=interleaved");
    l.text += fmt::format(" (chunks {})", a.chunks);
  }
  if (a.tensor > 1) {
    field(fmt::format("tensor={}", a.tensor)), field("sequence=true");
    l.text += fmt::format(" x tensor {}", a.tensor);
  }
  if (a.expert > 1)
    field(fmt::format("expert={}", a.expert)), l.text += fmt::format(", experts over {}", a.expert);
  static const char* const kShards[] = {"none", "optimizer", "full"};
  field(fmt::format("shard={}", kShards[static_cast<int>(shard)]));
  if (shard != ShardLevel::none) l.text += fmt::format(", shard {}", kShards[static_cast<int>(shard)]);
  l.fields.push_back(fmt::format("--phases.0.micro_batch={}", micro));
  l.text += fmt::format(", micro-batch {}", micro);
  if (recompute) {
    l.fields.push_back("--memory.recompute=[\"activation\", \"add_norm.h\"]");
    l.text += ", recompute";
  }
  l.family = name_of_family(c.recipe);
  l.kinds = (a.tensor > 1) + (a.pipeline > 1) + (a.chunks > 1) + (a.expert > 1) +
            (shard != ShardLevel::none) + recompute;
  return c;
}

/// The first rank of each stage, for all of it.
RunPlan plan_stages(const Recipe& recipe, int ranks) {
  RunPlan plan;
  plan.what = {ranks, 1};
  const int stages = static_cast<int>(recipe.parallel.pipeline), per_stage = ranks / stages;
  for (int stage = 0; stage < stages; ++stage) {
    const PaperRank rank(recipe, plan.what, stage * per_stage);
    RankClass c{{}, plan_rank(rank)};
    for (int r = 0; r < per_stage; ++r) c.ranks.push_back(stage * per_stage + r);
    plan.model_flops += per_stage * c.plan.work.model_flops;
    plan.flops += per_stage * c.plan.work.flops();
    plan.classes.push_back(std::move(c));
  }
  return plan;
}

/// Keeps the reason of the family's nearest layout.
class Reasons {
 public:
  void add(const std::string& family, double distance, const std::string& reason) {
    for (Entry& e : entries_)
      if (e.family == family) {
        if (distance < e.distance) e.distance = distance, e.reason = reason;
        return;
      }
    entries_.push_back({family, distance, reason});
  }
  std::vector<SearchResult::Rejected> without(const std::vector<Layout>& best) const {
    std::vector<SearchResult::Rejected> rejected;
    for (const Entry& e : entries_)
      if (std::none_of(best.begin(), best.end(), [&](const Layout& l) { return l.family == e.family; }))
        rejected.push_back({e.family, e.reason});
    return rejected;
  }
  std::string nearest() const {
    const auto e = std::min_element(entries_.begin(), entries_.end(),
                                    [](const Entry& a, const Entry& b) { return a.distance < b.distance; });
    return e == entries_.end() ? "no layout was possible" : e->family + ": " + e->reason;
  }

 private:
  struct Entry {
    std::string family;
    double distance;
    std::string reason;
  };
  std::vector<Entry> entries_;
};

/// FLOP/s of the fastest product that the file knows, or of what it describes.
double best_product_rate(const Cluster& cluster, const std::string& type) {
  double best = cluster.device.product_share * OpCostModel(cluster, type).peak();
  for (const DevicePoint& p : cluster.device.points)
    if (p.op == "linear" && p.type == type) best = std::max(best, 1e12 * p.tflops);
  return best;
}

// How far a layout is from being usable: slower ones come before those that do not fit, these before refused
// ones.
constexpr double kTooLarge = 1e3, kRefused = 1e6;

}  // namespace

SearchResult search_layouts(const Recipe& recipe, int ranks, const Cluster& cluster, const TimeFor& what) {
  SearchResult result;
  Reasons reasons;
  std::vector<Layout> found;
  double fastest = 0;
  const double best_rate = best_product_rate(cluster, what.type);
  const auto capacity = static_cast<double>(cluster.device_bytes());
  for (const Axes& a : all_axes(recipe, ranks, cluster))
    for (const ShardLevel shard : {ShardLevel::none, ShardLevel::optimizer, ShardLevel::full})
      for (const int64_t micro : {1, 2, 3, 4, 6, 8})
        for (bool fits_without = false; const bool recompute : {false, true}) {
          ++result.tried;
          // What recomputation saves is of use only where the layout does not fit without it.
          if (recompute && fits_without) {
            ++result.too_slow;
            continue;
          }
          if (!recompute) fits_without = false;
          Candidate c = candidate_of(recipe, a, shard, micro, recompute, ranks);
          try {
            // Cheap refusals first.
            Recipe checked = c.recipe;
            grid_of(checked.parallel, ranks);
            fit_to_ranks(checked, static_cast<int>(ranks / (a.tensor * a.pipeline)));
            // Weights, gradients and state of the first and the last stage alone decide most.
            const PaperRank first(c.recipe, {ranks, 1}, 0);
            const TrainEngine& e = first.engine();
            const auto state =
                static_cast<double>(e.model().bytes() + e.gradients().bytes() + e.optimizer().state_bytes());
            if (state > capacity) {
              ++result.too_large;
              reasons.add(c.layout.family, kTooLarge * state / capacity,
                          fmt::format("{}: weights, gradients and state take {} of a device's {}",
                                      c.layout.text, format_bytes(state), format_bytes(capacity)));
              continue;
            }
            const RunPlan plan = plan_stages(c.recipe, ranks);
            const RankMemory& m = plan.fullest().plan.memory;
            c.layout.bytes = m.total() - m.checkpoint;
            if (static_cast<double>(c.layout.bytes) > capacity) {
              ++result.too_large;
              reasons.add(
                  c.layout.family, kTooLarge * static_cast<double>(c.layout.bytes) / capacity,
                  fmt::format("{}: the fullest rank needs {} of a device's {}", c.layout.text,
                              format_bytes(static_cast<double>(c.layout.bytes)), format_bytes(capacity)));
              continue;
            }
            fits_without = true;
            // No rank's products can be faster than the best that the file knows.
            double bound = 0;
            for (const RankClass& r : plan.classes) bound = std::max(bound, r.plan.work.products / best_rate);
            const auto tokens = static_cast<double>(plan.tokens()) / ranks;
            if (tokens / bound < fastest * (1 - 5 * kTie)) {
              ++result.too_slow;
              reasons.add(c.layout.family, fastest * bound / tokens,
                          c.layout.text + ": its products alone would take longer than the best step");
              continue;
            }
            const RunTime time = time_run(c.recipe, plan, cluster, what);
            ++result.simulated;
            c.layout.step_seconds = time.step.seconds;
            c.layout.tokens_per_second = time.tokens_per_second;
            c.layout.utilisation = time.utilisation;
            fastest = std::max(fastest, time.tokens_per_second);
            found.push_back(c.layout);
          } catch (const Error& e) {
            ++result.refused;
            reasons.add(c.layout.family, kRefused, c.layout.text + ": " + e.what());
          }
        }
  if (found.empty())
    throw Error(fmt::format("no layout of {} ranks fits '{}'", ranks, cluster.name),
                "nearest: " + reasons.nearest());
  // Steps of the tie's width: those in one are ordered by simplicity, then by speed.
  const auto group = [&](const Layout& l) { return std::floor((1 - l.tokens_per_second / fastest) / kTie); };
  std::stable_sort(found.begin(), found.end(), [&](const Layout& x, const Layout& y) {
    if (group(x) != group(y)) return group(x) < group(y);
    return x.kinds != y.kinds ? x.kinds < y.kinds : x.tokens_per_second > y.tokens_per_second;
  });
  for (const Layout& l : found)
    reasons.add(
        l.family, fastest / l.tokens_per_second,
        fmt::format("{}: {:.1f} % slower than the best", l.text, 100 * (1 - l.tokens_per_second / fastest)));
  if (found.size() > kShown) found.resize(kShown);
  result.best = std::move(found);
  result.rejected = reasons.without(result.best);
  return result;
}

std::string to_text(const SearchResult& r) {
  Table table({words("layout"), number("step s", 3), number("tokens/s", 0), percent("of peak"),
               number("GB", 1, 1e-9)});
  for (const Layout& l : r.best)
    table.add({l.text, l.step_seconds, l.tokens_per_second, l.utilisation, static_cast<double>(l.bytes)});
  std::string text = fmt::format("{} layouts: {} refused, {} too large, {} too slow, {} simulated\n", r.tried,
                                 r.refused, r.too_large, r.too_slow, r.simulated) +
                     table.text();
  std::string fields;
  for (const std::string& f : r.best.front().fields) fields += " " + f;
  text += "the first:" + fields + "\n";
  for (const auto& [family, reason] : r.rejected) text += fmt::format("not {}: {}\n", family, reason);
  return text;
}

}  // namespace ingot
