// See rank_plan.h.
#include "plan/rank_plan.h"

#include <utility>

#include "measure/profile.h"
#include "ops/registry.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

Recipe fitted_to(Recipe recipe, const RankGroups& groups, std::vector<std::string>& changes) {
  changes = fit_to_ranks(recipe, groups.batch_ranks());
  return recipe;
}

TimeOf purpose_of(const std::string& op) {
  for (const Op* known : all_ops())
    if (op == known->name) return time_of(*known);
  return TimeOf::kernels;
}

/// The work of `times` such passes; `kept`: of `kept_times` that keep every activation.
RankWork work_of(const TapeProfile& profile, double times, const TapeProfile& kept, double kept_times) {
  RankWork work;
  for (const auto& [op, p] : profile) {
    const TimeOf what = purpose_of(op);
    (what == TimeOf::products    ? work.products
     : what == TimeOf::attention ? work.attention
                                 : work.other) += times * (p.flops[0] + p.flops[1] + p.flops[2]);
    if (p.wire_bytes > 0) work.wire_bytes[op] += times * p.wire_bytes;
  }
  for (const auto& [op, p] : kept)
    if (const TimeOf what = purpose_of(op); what == TimeOf::products)
      work.model_flops += kept_times * (p.flops[0] + p.flops[1] + p.flops[2]);
    else if (what == TimeOf::attention)
      work.model_flops += kept_times * 3 * p.flops[0];
  return work;
}

/// The phase and the batch size of the largest slab.
std::pair<size_t, const LevelPlan*> largest_level(const Preflight& f) {
  std::pair<size_t, const LevelPlan*> most{0, nullptr};
  for (size_t i = 0; i < f.phases.size(); ++i)
    for (const LevelPlan& l : f.phases[i].levels)
      if (most.second == nullptr || l.micro.memory.slab_bytes > most.second->micro.memory.slab_bytes)
        most = {i, &l};
  return most;
}

}  // namespace

std::vector<MemoryPart> parts_of(const RankMemory& m) {
  return {{"masters", m.masters},         {"copies", m.copies},       {"gradients", m.gradients},
          {"moments", m.moments},         {"in flight", m.in_flight}, {"checkpoint", m.checkpoint},
          {"activations", m.activations}, {"total", m.total()}};
}

PaperRank::PaperRank(const Recipe& recipe, const PlanFor& what, int rank)
    : world_(rank, what.ranks), ranks_(on_paper(recipe), &world_, what.supposed) {
  engine_ = std::make_unique<TrainEngine>(fitted_to(on_paper(recipe), ranks_.groups(), changes_), ranks_,
                                          Backing::nothing);
}

RankPlan plan_rank(const PaperRank& rank) {
  const TrainEngine& engine = rank.engine();
  const Recipe& recipe = engine.recipe();
  RankPlan plan;
  plan.rank = rank.groups().rank();
  plan.stage = engine.pipeline().stage();
  const Preflight f = plan_engine(engine, 0, 0);
  const auto [phase, level] = largest_level(f);
  const PhaseConfig& s = recipe.phases[phase];
  plan.phase = s.name;
  plan.tokens = level->batch * s.sequence;
  plan.micro_batches = level->batch / (level->micro_batch * recipe.data_ranks());
  RankMemory& m = plan.memory;
  const WeightSet& weights = engine.model().weights();
  for (int i = 0; i < weights.size(); ++i) {
    plan.parameters += weights.master(i).numel();
    if (recipe.parallel.shard != ShardLevel::full && weights.has_copy(i))
      m.copies += weights.compute(i).bytes();
  }
  m.masters = f.weight_bytes - m.copies;
  m.gradients = f.gradient_bytes;
  m.moments = f.optimizer_bytes;
  m.in_flight = f.transient_bytes;
  m.checkpoint = f.snapshot_bytes;
  m.activations = f.predicted_bytes - m.state() - f.scratch_bytes - m.in_flight - m.checkpoint;
  plan.slab_by_segment = level->micro.categories;
  StepPlan kept = level->micro;
  if (!f.recompute.empty()) {
    // Of the fewest micro-batches that schedules take, since all are alike.
    const int64_t stages = engine.pipeline().stages();
    const StepOptions options = step_options(recipe, engine.model(), s, level->micro_batch);
    kept = plan_step(engine.model(), options, level->micro_batch, s.sequence, engine.step_ranks(),
                     plan.micro_batches % stages == 0 ? stages : plan.micro_batches);
  }
  const auto times = [&](const StepPlan& of) {
    return static_cast<double>(plan.micro_batches) / static_cast<double>(of.micro_batches);
  };
  plan.work = work_of(level->micro.work, times(level->micro), kept.work, times(kept));
  plan.work.optimizer = f.phases[phase].optimizer_flops;
  return plan;
}

}  // namespace ingot
