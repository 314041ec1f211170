// See search.h.
#include "plan/search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <tuple>

#include "base/progress.h"
#include "nn/parameter.h"
#include "plan/layout_choice.h"
#include "plan/op_cost.h"
#include "train/memory_policy.h"
#include "train/phase_kind.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

using Layout = SearchResult::Layout;

constexpr double kTie = 0.01;
constexpr size_t kShown = 10;
/// How much packing may change the memory of a step with the number of its micro-batches.
constexpr double kPacking = 1.05;
constexpr int64_t kExpertRanks = 64;  ///< of layouts that stand for all with experts over many

/// Keeps the reason of each family's nearest layout.
class Reasons {
 public:
  void add(const std::string& family, double distance, const std::string& reason) {
    const auto known =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.of.family == family; });
    if (known == entries_.end())
      entries_.push_back({distance, {family, reason}});
    else if (distance < known->distance)
      known->distance = distance, known->of.reason = reason;
  }
  std::vector<SearchResult::Rejected> without(const std::vector<Layout>& best) const {
    std::vector<SearchResult::Rejected> rejected;
    for (const Entry& e : entries_)
      if (std::none_of(best.begin(), best.end(), [&](const Layout& l) { return l.family == e.of.family; }))
        rejected.push_back(e.of);
    return rejected;
  }
  std::string nearest() const {
    const auto e = std::min_element(entries_.begin(), entries_.end(),
                                    [](const Entry& a, const Entry& b) { return a.distance < b.distance; });
    return e == entries_.end() ? "no layout was possible" : e->of.family + ": " + e->of.reason;
  }

 private:
  struct Entry {
    double distance;
    SearchResult::Rejected of;
  };
  std::vector<Entry> entries_;
};

/// FLOP/s of the fastest product that the file knows, or of what it describes.
double best_product_rate(const Cluster& cluster, const std::string& type) {
  double best = cluster.device.product_share.of(type) * OpCostModel(cluster, type).peak();
  for (const DevicePoint& p : cluster.device.points)
    if (is_product(p.op) && p.type == type) best = std::max(best, 1e12 * p.tflops);
  return best;
}

// How far a layout is from being usable: slower ones come before those that do not fit, these before refused
// ones.
constexpr double kTooLarge = 1e3, kRefused = 1e6;

/// Looks first at the layout that may be fastest. A choice is first known by a bound on its time, then by its
/// simulated time, and last by its memory, which takes most to plan.
class Search {
 public:
  Search(const Recipe& recipe, int ranks, const Cluster& cluster, const TimeFor& what)
      : base_(without_limit(recipe)), ranks_(ranks), cluster_(cluster), what_(what) {
    const PaperRank one(ingot::candidate_of(base_, {}, "", 1).recipe, {1, 1}, 0);
    const RankPlan plan = plan_rank(one);
    while (base_.phases[phase_].name != plan.phase) ++phase_;
    parts_ = part_times({.expert = std::gcd(std::max<int64_t>(1, base_.model.moe.experts), kExpertRanks)});
    result_.ranks = ranks, result_.phase = plan.phase, result_.cluster = cluster.name;
    result_.capacity = cluster.device_bytes();
    per_token_ =
        plan.work.products / static_cast<double>(plan.tokens) / best_product_rate(cluster, what.type);
    for (const LayoutChoice& choice : all_choices(base_, ranks_, cluster_)) choose(choice, 0);
  }

  SearchResult run() {
    // Ten, and what counts as equally fast as the tenth.
    while (Queue* q = fastest_queue()) {
      if (found_.size() >= kShown && group(q->top().seconds) > group(seconds_of(found_[kShown - 1]))) break;
      advance(*q);
    }
    if (found_.empty())
      throw Error(fmt::format("no layout of {} ranks fits '{}'", ranks_, cluster_.name),
                  "nearest: " + reasons_.nearest());
    result_.best = found_;
    std::ranges::stable_sort(result_.best, {}, [&](const Layout& l) {
      return std::tuple(group(seconds_of(l)), l.model_ranks, l.kinds, seconds_of(l));
    });
    if (result_.best.size() > kShown) result_.best.resize(kShown);
    explain_others();
    result_.fit = static_cast<int>(found_.size());
    result_.fitting = found_;
    result_.rejected = reasons_.without(result_.best);
    return std::move(result_);
  }

 private:
  enum class Known { bound, work, time };
  struct Entry {
    double seconds = 0;  ///< of a token on a device
    size_t order = 0;    ///< of equal ones the first that was chosen comes first
    Known known = Known::bound;
    double fill = 1;  ///< how much longer than its work a step takes at least
    LayoutChoice choice;
    RunTime time;  ///< once known
    bool operator>(const Entry& other) const {
      return seconds != other.seconds ? seconds > other.seconds : order > other.order;
    }
  };
  using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;
  struct FirstStage {
    int64_t bytes = 0;  ///< of weights, gradients and state
    double gather_seconds = 0;
  };

  /// A device's memory is the limit.
  static Recipe without_limit(Recipe recipe) {
    recipe.memory.limit.clear();
    return recipe;
  }

  /// Puts a choice into the queue of its family, unless the recipe's own checks refuse it. `least`: seconds
  /// of a token that are known already.
  void choose(const LayoutChoice& choice, double least) {
    ++result_.tried;
    LayoutCandidate c = candidate_of(choice);
    try {
      if (c.recipe.parallel.sequence && base_.model.moe.sequence_aux_coefficient > 0)
        throw Error("sequence parallelism cuts the documents of moe.sequence_aux_coefficient", "set it to 0");
      grid_of(c.recipe.parallel, ranks_);
      fit_to_ranks(c.recipe, static_cast<int>(ranks_ / (choice.tensor * choice.pipeline)));
    } catch (const Error& e) {
      return refuse(c.layout, e);
    }
    // No rank's products are faster than the best that the file knows, and a pipeline fills and drains: the
    // mean over its ranks waits for half of the other stages.
    const auto m = static_cast<double>(micro_batches(c.recipe.phases[phase_], c.recipe.data_ranks())),
               p = static_cast<double>(choice.pipeline), v = static_cast<double>(choice.chunks);
    const double fill = 1 + (p - 1) / (2 * v * m);
    queues_[c.layout.family].push(
        {std::max(fill * per_token_, least), order_++, Known::bound, fill, choice, {}});
  }

  LayoutCandidate candidate_of(const LayoutChoice& choice) {
    return ingot::candidate_of(base_, choice, layout_of(choice), ranks_);
  }

  /// How layers lie in stages: the fastest way with micro-batches of one sequence, experts over many ranks.
  /// Of ways that are about as fast the one with the fewest layers in the first stage, whose micro-batches
  /// wait longest.
  const std::string& layout_of(const LayoutChoice& choice) {
    const bool exchanges = choice.expert > 1;
    const auto [layout, is_new] = layouts_.try_emplace({choice.pipeline, choice.chunks, exchanges});
    if (!is_new || choice.pipeline == 1) return layout->second;
    double best = 0;
    int64_t fewest = 0;
    LayoutChoice of{
        .pipeline = choice.pipeline, .chunks = choice.chunks, .expert = exchanges ? kExpertRanks : 1};
    for (; best == 0 && of.expert > (exchanges ? 1 : 0); of.expert /= 2)
      for (const std::string& text :
           balanced_layouts(parts_, base_.model.mtp.modules(), of.pipeline, of.chunks)) {
        if (layout->second.empty()) layout->second = text;
        try {
          const LayoutCandidate c = ingot::candidate_of(base_, of, text, ranks_);
          const PipelineLayout laid = ingot::layout_of(c.recipe.parallel, c.recipe.model);
          const int64_t layers = laid.layers_of(0);
          const double near = layers < fewest ? 1 - kTie : layers > fewest ? 1 + kTie : 1;
          const double speed = time_of(of, only_phase(c.recipe, base_.phases[phase_].name)).tokens_per_second;
          if (speed > near * best) best = speed, fewest = layers, layout->second = text;
        } catch (const Error&) {  // these ranks do not divide so
        }
      }
    return layout->second;
  }

  /// One device would read the weights of all experts in each pass: they are divided among many.
  PartTimes part_times(const LayoutChoice& choice) const try {
    const int ranks = static_cast<int>(choice.expert);
    const PaperRank whole(ingot::candidate_of(base_, choice, "", ranks).recipe, {ranks, 1}, 0);
    const RankProgram passes = record_program(whole, phase_, cluster_);
    const ModelConfig& model = base_.model;
    const OpCostModel costs(cluster_, what_.type);
    PartTimes t;
    t.layers.resize(static_cast<size_t>(model.layers));
    for (const PassProgram& program : passes.chunks.front())
      for (const PassStep& s : program) {
        const int64_t group = s.layer_group;
        if (group == kNoLayerGroup) continue;
        double& of = group == depth_of_layer_group(kEmbeddingGroup) ? t.embedding
                     : group == depth_of_layer_group(kHeadGroup)    ? t.loss
                     : group >= model.layers                        ? t.modules
                                                                    : t.layers[static_cast<size_t>(group)];
        of += costs.time_of(s).seconds;
      }
    // Each module has a loss of its own.
    const auto modules = static_cast<double>(model.mtp.modules()), loss = t.loss / (1 + modules);
    t.modules += modules * loss, t.loss = loss;
    return t;
  } catch (const Error&) {  // the recipe's own checks refuse expert ranks
    if (choice.expert == 1) throw;
    return part_times({});
  }

  static int64_t micro_batches(const PhaseConfig& s, int64_t data) {
    return planned_rows(s, 0, data) / (micro_rows(s, 0, data) * data);
  }

  void refuse(const Layout& layout, const Error& e) {
    ++result_.refused;
    reasons_.add(layout.family, kRefused, layout.text + ": " + e.what());
  }

  Queue* fastest_queue() {
    Queue* best = nullptr;
    for (auto& [family, q] : queues_)
      if (!q.empty() && (best == nullptr || best->top() > q.top())) best = &q;
    return best;
  }

  static double seconds_of(const Layout& l) { return 1 / l.tokens_per_second; }
  double group(double seconds) const { return std::floor((1 - seconds_of(found_.front()) / seconds) / kTie); }

  /// Learns more of the first of a queue.
  void advance(Queue& q) {
    Entry e = q.top();
    q.pop();
    LayoutCandidate c = candidate_of(e.choice);
    try {
      // The phase that takes the most memory stands for all.
      const Recipe recipe = only_phase(c.recipe, base_.phases[phase_].name);
      if (e.known == Known::time) return check_memory(e, recipe, c.layout);
      const FirstStage& first = first_stage(e.choice, recipe);
      c.layout.bytes = first.bytes;
      if (c.layout.bytes > capacity()) return too_large(c.layout, "weights, gradients and state take");
      c.layout.bytes += held_bytes(e.choice, 1);  // longer micro-batches hold more
      if (c.layout.bytes > capacity()) return recompute_or_drop(e, c.layout, "the first stage needs");
      if (e.known == Known::bound) {
        e.seconds = std::max(e.seconds, e.fill * work_of_token(e.choice, recipe)), e.known = Known::work;
        return q.push(std::move(e));
      }
      const double gathers = first.gather_seconds * static_cast<double>(e.choice.tensor * e.choice.pipeline) /
                             static_cast<double>(e.choice.micro * recipe.phases[0].sequence);
      if (gathers > e.seconds) return e.seconds = gathers, q.push(std::move(e));
      e.time = time_of(e.choice, recipe);
      e.seconds = std::max(e.seconds, 1 / e.time.tokens_per_second), e.known = Known::time;
      q.push(std::move(e));
    } catch (const Error& error) {
      refuse(c.layout, error);
    }
  }

  int64_t capacity() const { return cluster_.device_bytes(); }

  void too_large(const Layout& layout, const char* what) {
    const auto bytes = static_cast<double>(layout.bytes), has = static_cast<double>(capacity());
    ++result_.too_large;
    reasons_.add(
        layout.family, kTooLarge * bytes / has,
        fmt::format("{}: {} {} of a device's {}", layout.text, what, format_bytes(bytes), format_bytes(has)));
  }

  int rank_of(const Recipe& recipe, int stage) const {
    return stage * (ranks_ / static_cast<int>(recipe.parallel.pipeline));
  }

  /// Does not depend on micro-batch and recomputation.
  const FirstStage& first_stage(LayoutChoice choice, const Recipe& recipe) {
    choice.micro = 1, choice.recompute = 0;
    const auto known = first_stages_.find(choice);
    if (known != first_stages_.end()) return known->second;
    const PaperRank rank(recipe, {ranks_, 1}, 0);
    const TrainEngine& e = rank.engine();
    return first_stages_[choice] = {e.model().bytes() + e.gradients().bytes() + e.optimizer().state_bytes(),
                                    gather_seconds(rank, cluster_, what_)};
  }

  /// What the virtual stages of a layout run: the same as the stages of a pipeline with so many of them,
  /// which need one micro-batch each to be recorded. Stages with equal layers are alike in every pipeline.
  std::vector<const RankProgram*> passes_of(const LayoutChoice& choice, const Recipe& recipe) {
    const int64_t stages = choice.pipeline * choice.chunks;
    Recipe deep = recipe;
    deep.parallel.pipeline = stages;
    if (deep.parallel.schedule != PipelineScheduleKind::merged)
      deep.parallel.schedule = PipelineScheduleKind::one_forward_one_backward;
    const int ranks = ranks_ * static_cast<int>(choice.chunks);
    if (stages > 1)
      deep.phases[0].batch = choice.micro * stages * (ranks_ / (choice.tensor * choice.pipeline));
    deep.phases[0].batches.clear();
    LayoutChoice key = work_key(choice);
    key.pipeline = std::min<int64_t>(stages, 2);  // one stage alone receives nothing
    deep.parallel.shard = key.shard;
    const StageKinds kinds(deep);
    std::vector<const RankProgram*> by_stage;
    for (const size_t kind : kinds.kind) {
      const std::pair of(key, kinds.signature[kind]);
      if (!passes_.contains(of)) {
        const PaperRank rank(deep, {ranks, 1}, kinds.first[kind] * (ranks / static_cast<int>(stages)));
        passes_[of] = record_program(rank, 0, cluster_);
      }
      by_stage.push_back(&passes_[of]);
    }
    return by_stage;
  }

  /// Kernels follow from tensor and expert ranks, the micro-batch, recomputation, and whether they read the
  /// masters or copies of them.
  static LayoutChoice work_key(const LayoutChoice& c) {
    return {.tensor = c.tensor,
            .expert = c.expert,
            .shard = c.shard == ShardLevel::none ? ShardLevel::none : ShardLevel::optimizer,
            .micro = c.micro,
            .recompute = c.recompute};
  }

  /// Seconds of a token on a device that the work of all its layers takes at least: the same however they lie
  /// in stages and whatever is sharded.
  double work_of_token(const LayoutChoice& choice, const Recipe& recipe) {
    const LayoutChoice key = work_key(choice);
    const auto known = works_.find(key);
    if (known != works_.end()) return known->second;
    const bool merged = recipe.parallel.schedule == PipelineScheduleKind::merged;
    return works_[key] = static_cast<double>(choice.tensor) /
                         static_cast<double>(choice.micro * recipe.phases[0].sequence) *
                         least_seconds(passes_of(choice, recipe), cluster_, what_, merged);
  }

  RunTime time_of(const LayoutChoice& choice, const Recipe& recipe) {
    const std::vector<const RankProgram*> passes = passes_of(choice, recipe);
    const StageKinds kinds(recipe);
    std::vector<std::unique_ptr<PaperRank>> ranks;
    std::vector<RankProgram> programs(kinds.first.size());
    for (size_t kind = 0; kind < kinds.first.size(); ++kind) {
      const int stage = kinds.first[kind];
      ranks.push_back(std::make_unique<PaperRank>(recipe, PlanFor{ranks_, 1}, rank_of(recipe, stage)));
      programs[kind].groups = group_shapes(*ranks.back(), cluster_);
      for (int64_t c = 0; c < choice.chunks; ++c)
        programs[kind].chunks.push_back(
            passes[static_cast<size_t>(c * choice.pipeline + stage)]->chunks.front());
    }
    std::vector<StageRank> stages;
    for (const size_t kind : kinds.kind) stages.push_back({ranks[kind].get(), &programs[kind]});
    const Recipe& fitted = ranks.front()->engine().recipe();
    return time_stages(stages, 0, micro_batches(fitted.phases[0], fitted.data_ranks()), cluster_, what_,
                       true);
  }

  /// The recipe with as many micro-batches as fill its pipeline: with more, memory changes only by how its
  /// buffers are packed.
  Recipe filled(Recipe recipe, const LayoutChoice& choice) const {
    PhaseConfig& s = recipe.phases[0];
    const int64_t p = choice.pipeline, data = ranks_ / (choice.tensor * p);
    const int64_t all = s.batch / (choice.micro * data), few = 2 * p + all % p;
    s.batches.clear();
    if (p > 1 && few < all) s.batch = few * choice.micro * data;
    return recipe;
  }

  RankPlan plan_of(const Recipe& recipe, int stage) const {
    return plan_rank(PaperRank(recipe, {ranks_, 1}, rank_of(recipe, stage)));
  }

  /// What the first stage holds between passes; 0: not known.
  int64_t held_bytes(LayoutChoice choice, int64_t micro) try {
    choice.micro = micro, choice.shard = ShardLevel::optimizer;
    const Recipe recipe = only_phase(candidate_of(choice).recipe, base_.phases[phase_].name);
    const std::vector<const RankProgram*> passes = passes_of(choice, recipe);
    const PhaseConfig s = filled(recipe, choice).phases[0];
    const auto schedule = make_pipeline_schedule(
        recipe.parallel.schedule, {static_cast<int>(choice.pipeline), static_cast<int>(choice.chunks),
                                   static_cast<int>(micro_batches(s, recipe.data_ranks()))});
    int64_t held = 0, most = 0;
    const auto run = [&](const Work& w) {
      const int64_t bytes = passes[static_cast<size_t>(w.chunk * choice.pipeline)]->held_bytes;
      if (w.kind == WorkKind::forward) most = std::max(most, held += bytes);
      if (w.kind == WorkKind::backward || w.kind == WorkKind::backward_weight) held -= bytes;
    };
    for (const ScheduleEntry& e : schedule.ranks.front()) {
      run(e.work);
      if (e.beside) run(*e.beside);
    }
    return most;
  } catch (const Error&) {  // a recipe may refuse them where it takes larger ones
    return 0;
  }

  /// Plans of few micro-batches first, which refuse most of what does not fit; then of all, where packing
  /// could make a rank the fullest.
  void check_memory(const Entry& e, const Recipe& recipe, Layout& layout) {
    const double most = kPacking * static_cast<double>(capacity());
    const Recipe few = filled(recipe, e.choice);
    const StageKinds kinds(recipe);
    std::vector<int64_t> bytes;
    double model_flops = 0;  // of a token
    layout.bytes = first_stage(e.choice, recipe).bytes + held_bytes(e.choice, e.choice.micro);
    if (layout.bytes > capacity()) return recompute_or_drop(e, layout, "the first stage needs");
    for (size_t kind = 0; kind < kinds.first.size(); ++kind) {
      const RankPlan of = plan_of(few, kinds.first[kind]);
      bytes.push_back(layout.bytes = of.memory.on_device());
      if (static_cast<double>(layout.bytes) > most)
        return recompute_or_drop(e, layout, "the fullest rank needs");
      const auto alike = static_cast<double>(std::count(kinds.kind.begin(), kinds.kind.end(), kind));
      model_flops += alike * static_cast<double>(ranks_) / static_cast<double>(kinds.kind.size()) *
                     of.work.model_flops / static_cast<double>(of.tokens);
    }
    const auto fullest = static_cast<double>(std::ranges::max(bytes));
    for (size_t kind = 0; kind < bytes.size() && few.phases[0].batch < recipe.phases[0].batch; ++kind)
      if (static_cast<double>(bytes[kind]) * kPacking >= fullest)
        bytes[kind] = plan_of(recipe, kinds.first[kind]).memory.on_device();
    layout.bytes = std::ranges::max(bytes);
    if (layout.bytes > capacity()) return recompute_or_drop(e, layout, "the fullest rank needs");
    layout.step_seconds = e.time.step.seconds;
    layout.tokens_per_second = e.time.tokens_per_second;
    layout.utilisation = model_flops * e.time.tokens_per_second / OpCostModel(cluster_, what_.type).peak();
    found_.push_back(layout);
  }

  void recompute_or_drop(const Entry& e, const Layout& layout, const char* what) {
    too_large(layout, what);
    LayoutChoice recomputed = e.choice;
    if (++recomputed.recompute <= recompute_levels()) choose(recomputed, e.seconds);
  }

  /// For families of which none is among the best: how much slower their fastest is that fits. A family gives
  /// up after so many that do not.
  void explain_others() {
    constexpr int kTries = 12;
    const double best = seconds_of(found_.front());
    const auto slower = [&](double seconds) { return 100 * (1 - best / seconds); };
    for (auto& [family, q] : queues_) {
      const auto is_of = [&](const Layout& l) { return l.family == family; };
      const bool shown = std::ranges::any_of(result_.best, is_of);
      const auto first = [&] { return std::ranges::find_if(found_, is_of); };
      for (int i = 0; i < kTries && !shown && !q.empty() && first() == found_.end(); ++i) advance(q);
      if (const auto f = first(); f != found_.end())
        reasons_.add(family, seconds_of(*f) / best,
                     fmt::format("{}: {:.1f} % slower than the best", f->text, slower(seconds_of(*f))));
      else if (!q.empty() && !shown)
        reasons_.add(family, kTooLarge / 2,
                     fmt::format("{}: at least {:.1f} % slower than the best",
                                 candidate_of(q.top().choice).layout.text, slower(q.top().seconds)));
      result_.too_slow += static_cast<int>(q.size());
    }
  }

  const Recipe base_;
  const int ranks_;
  const Cluster& cluster_;
  const TimeFor what_;
  size_t phase_ = 0, order_ = 0;
  double per_token_ = 0;                 ///< seconds that a token's products take at least
  std::map<std::string, Queue> queues_;  ///< by family
  /// By stages, chunks, and whether experts are divided: how layers lie in them.
  std::map<std::tuple<int64_t, int64_t, bool>, std::string> layouts_;
  PartTimes parts_;                       ///< of a device that has the whole model
  std::map<LayoutChoice, double> works_;  ///< work_of_token()
  std::map<LayoutChoice, FirstStage> first_stages_;
  /// By work_key() and the layers of a stage.
  std::map<std::pair<LayoutChoice, std::string>, RankProgram> passes_;
  std::vector<Layout> found_;  ///< by time
  Reasons reasons_;
  SearchResult result_;
};

}  // namespace

SearchResult search_layouts(const Recipe& recipe, int ranks, const Cluster& cluster, const TimeFor& what) {
  return Search(recipe, ranks, cluster, what).run();
}

}  // namespace ingot
