// See layout_parity.h.
#include "support/layout_parity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/gradient_reducer.h"

namespace ingot::test {
namespace {

PipelineLayout layout_of(const LayoutCase& c, const ModelConfig& m) {
  if (c.layout.empty()) return even_pipeline_layout(c.grid.pp, c.chunks, m.layers, m.mtp.modules());
  return parse_pipeline_layout(c.layout, c.grid.pp, m.layers, m.mtp.modules());
}

double squares(const Tensor& t) {
  double sum = 0;
  for (const double v : reference::load(t)) sum += v * v;
  return sum;
}

/// Sum of squares of the whole model's reduced gradient, the same on all ranks: each element counts once.
double gradient_square_sum(const RankGroups& groups, const ParameterTable& table,
                           const GradientBuffer& gradients) {
  Array sums[3] = {{0}, {0}, {0}};  // by ShardAxis; experts are sharded over both axes of their group
  for (int i = 0; i < table.size(); ++i)
    sums[static_cast<int>(table[i].shard.axis)][0] += squares(gradients.gradient(i));
  all_reduce(groups.tensor(), sums[static_cast<int>(ShardAxis::tensor)]);
  all_reduce(groups.expert(), sums[static_cast<int>(ShardAxis::expert)]);
  return sums[0][0] + sums[1][0] + sums[2][0];
}

/// Sums over all ranks of a group, by layer.
void sum_over(Communicator& group, std::map<int64_t, Array>& by_layer) {
  for (auto& [layer, values] : by_layer) all_reduce(group, values);
}

void expect_near(const std::map<int64_t, Array>& found, const std::map<int64_t, Array>& expected,
                 double bound, const char* what) {
  for (const auto& [layer, values] : found)
    for (size_t i = 0; i < values.size(); ++i) {
      const double e = expected.at(layer).at(i);
      EXPECT_LE(std::abs(values[i] - e), bound * std::max(1.0, std::abs(e))) << what << " of layer " << layer;
    }
}

}  // namespace

void reduce_gradients(const RankGroups& groups, const ParameterTable& table, GradientBuffer& gradients) {
  GradientReducer reducer(groups, table, gradients);
  reducer.begin_step(1);
  reducer.end_micro_batch();
  reducer.finish();
}

std::string LayoutCase::name() const {
  static const char* const kForms[] = {"", "_kvgather", "_ring"};
  std::string n =
      fmt::format("{}_pp{}_dp{}_cp{}_tp{}_ep{}_etp{}_{}{}", problem.model, grid.pp, grid.dp, grid.cp, grid.tp,
                  grid.ep, grid.etp, layout.empty() ? fmt::format("v{}", chunks) : layout,
                  grid.pp > 1 || chunks > 1 ? fmt::format("_{}", name_of(schedule)) : "");
  n += kForms[static_cast<int>(options.context)];
  if (options.context_inner > 1) n += fmt::format("_inner{}", options.context_inner);
  if (group > 0) n += fmt::format("_g{}", group);
  if (options.sequence_parallel) n += "_sequence";
  if (options.dispatch == DispatchKind::all_gather) n += "_gather";
  if (options.dispatch == DispatchKind::hierarchical) n += fmt::format("_nodes{}", options.node_ranks);
  if (options.shards.level != ShardLevel::none)
    n += options.shards.level == ShardLevel::full ? "_full" : "_zero";
  if (problem.starve) n += "_starved";
  if (problem.mask_last) n += "_masked";
  if (problem.own_load) n += "_load";
  if (problem.recompute) n += "_recompute";
  if (problem.precision.stream == DType::f32) n += "_f32";
  for (char& x : n)
    if (std::isalnum(static_cast<unsigned char>(x)) == 0) x = '_';
  return n;
}

GroupMaker group_maker(World& world) {
  return [&world](std::string name, const std::vector<int>& members) {
    return world.group(std::move(name), members);
  };
}

LayoutRank::LayoutRank(const LayoutCase& c, const OneRank& one, int rank, const GroupMaker& make)
    : case_(c),
      one_(one),
      groups_(Grid(c.grid), rank, make, c.options),
      pipe_(Grid(c.grid), rank, make, layout_of(c, one.decoder.config()), one.decoder.table()),
      placement_(pipe_.placement(groups_.placement())),
      weights_(one.decoder.table(), placement_, c.problem.precision),
      gradients_(one.decoder.table(), placement_, c.problem.precision.stream),
      pipeline_(one.decoder, c.problem.precision, pipe_, schedule()),
      reducer_(groups_, one.decoder.table(), gradients_, &pipe_) {
  if (c.options.shards.level == ShardLevel::none) return;
  shards_.emplace(groups_, weights_);
  owned_.emplace(groups_, pipe_, one.decoder.table(), *shards_);
  if (c.options.shards.level == ShardLevel::full) gatherer_.emplace(groups_, weights_, &pipe_);
}

PipelineSchedule LayoutRank::schedule() const {
  return make_pipeline_schedule(case_.schedule, {pipe_.stages(), pipe_.layout().chunks(),
                                                 static_cast<int>(share() / micro_rows()), case_.group});
}

bool LayoutRank::hands_over() const {
  const GridShape& g = case_.grid;
  return case_.schedule == PipelineScheduleKind::merged && (g.tp > 1 || g.ep > 1 || g.cp > 1);
}

WeightGatherer::Plan LayoutRank::unit_plan() const {
  const PipelineSchedule s = schedule();
  return WeightGatherer::plan(groups_, weights_, pipe_, s.ranks[static_cast<size_t>(pipe_.stage())]);
}

void LayoutRank::expect_planned_transients() const {
  if (!gatherer_) return;
  EXPECT_GT(gatherer_->peak_bytes(), 0);
  EXPECT_LE(gatherer_->peak_bytes(), unit_plan().peak_bytes);
  EXPECT_GT(gradients_.peak_staged_bytes(), 0);
  EXPECT_LE(gradients_.peak_staged_bytes(),
            gradients_.transient_bytes(case_.schedule == PipelineScheduleKind::zero_bubble));
}

InterleavedPasses::Waits LayoutRank::run(const ParityInputs& inputs, TapeOptions options, Arena& arena,
                                         ParityOutcome& outcome, bool sums) {
  std::vector<ScheduleObserver*> observers;
  if (gatherer_ && options.device != DeviceKind::null) observers.push_back(&*gatherer_);
  if (sums) observers.push_back(&reducer_);
  const int64_t row_ranks = case_.grid.cp * (case_.options.sequence_parallel ? case_.grid.tp : 1);
  const auto step = [&](Tape& tape, int b) {
    return std::make_unique<ParityStep>(one_.decoder, inputs, weights_, tape,
                                        groups_.batch_rank() * share() + b * micro_rows(), micro_rows(),
                                        &groups_, outcome);
  };
  return pipeline_.run(step, micro_rows() * kParityLength / row_ranks, options, arena, observers);
}

TapeProfile LayoutRank::profile(const ParityInputs& inputs) {
  TapeProfile profile;
  TapeOptions options = parity_tape(case_.problem, &gradients_);
  options.device = DeviceKind::null;
  options.profile = &profile;
  CountingArena arena;
  ParityOutcome nothing;
  run(inputs, options, arena, nothing);
  return profile;
}

ParityOutcome LayoutRank::passes(const ParityInputs& inputs, bool sums) {
  TapeOptions options = parity_tape(case_.problem, &gradients_);
  ParityOutcome o;
  if (dry_.peak_bytes() == 0) {
    options.device = DeviceKind::null;
    run(inputs, options, dry_, o);
    options.device = DeviceKind::cpu;
    arena_.emplace(plan_memory(dry_.allocations()));
  }
  gradients_.begin_step();
  if (sums) reducer_.begin_step(share() / micro_rows());
  reducing_ = sums;
  arena_->restart();
  EXPECT_EQ(run(inputs, options, *arena_, o, sums).hidden > 0, hands_over());
  EXPECT_EQ(arena_->live_bytes(), 0);
  EXPECT_EQ(arena_->misses(), 0);
  EXPECT_EQ(arena_->peak_bytes(), dry_.peak_bytes());
  if (sums) expect_planned_transients();
  return o;
}

void LayoutRank::reduce() {
  if (!reducing_) {
    reducer_.begin_step(1);
    reducer_.end_micro_batch();
  }
  reducer_.finish();
  const std::vector<std::string> unwritten = gradients_.finish_step();
  if (groups_.tensor().rank() == 0) {  // the other ranks do not add the biases of partial sums
    EXPECT_EQ(unwritten, std::vector<std::string>{});
  }
  if (gatherer_) gatherer_->reshard_all();
}

void LayoutRank::weights_moved() {
  if (gatherer_) return;  // it gathers the weights when they are read
  shards_ ? shards_->gather(weights_) : weights_.refresh_compute();
}

ParityOutcome LayoutRank::step(const ParityInputs& inputs) {
  ParityOutcome o = passes(inputs, true);
  reduce();
  sum_over_ranks(o);
  return o;
}

/// The sum of squares of the model's gradient; each parameter counts on the rank that owns it.
double LayoutRank::square_sum() const {
  const ParameterTable& table = one_.decoder.table();
  Array sum{0};
  if (owned_) {
    for (int i = 0; i < table.size(); ++i)
      sum[0] += squares(part_of(gradients_.gradient(i), owned_->owned(i)));
    all_reduce(groups_.world(), sum);
    return sum[0];
  }
  double copies = 0;
  Array sharded{0};  // parameters that tensor ranks shard
  for (int i = 0; i < table.size(); ++i)
    if (!pipe_.owns(table[i]))
      (table[i].shard.axis == ShardAxis::tensor ? sharded[0] : copies) += squares(gradients_.gradient(i));
  all_reduce(groups_.tensor(), sharded);
  sum[0] = gradient_square_sum(groups_, table, gradients_) - copies - sharded[0];
  all_reduce(pipe_.forward(), sum);
  return sum[0];
}

void LayoutRank::sum_over_ranks(ParityOutcome& o) const {
  o.square_sum = square_sum();
  Array nll{o.nll};
  all_reduce(groups_.data(), nll);
  o.nll = nll[0];
  for (auto* by_layer : {&o.counts, &o.balance, &o.z}) sum_over(groups_.tokens(), *by_layer);
}

void expect_layout_equals_one_rank(const LayoutCase& c, const OneRank& one, World& world) {
  LayoutRank rank(c, one, world.rank(), group_maker(world));
  one.give_weights(rank.weights());
  const ParityOutcome o = rank.step(one.inputs);
  Array overlapped{static_cast<double>(rank.overlapped())};
  all_reduce(rank.groups().world(), overlapped);
  EXPECT_GT(overlapped[0], 0);
  one.expect_gradients(rank.gradients(), rank.placement(), world.rank());
  const bool exact = one.in_double();
  EXPECT_LE(std::abs(o.square_sum / one.outcome.square_sum - 1), exact ? 1e-9 : 1e-5);
  if (rank.sees_loss()) {
    EXPECT_LE(std::abs(o.nll / one.outcome.nll - 1), exact ? 1e-12 : 1e-6);
  }
  expect_near(o.counts, one.outcome.counts, 0, "routed tokens");
  expect_near(o.balance, one.outcome.balance, exact ? 1e-12 : 1e-6, "balance loss");
  expect_near(o.z, one.outcome.z, exact ? 1e-12 : 1e-6, "z-loss");
}

std::vector<LayoutCase> parity_matrix() {
  using enum PipelineScheduleKind;
  const RankOptions sequence{.sequence_parallel = true}, ring{.context = ContextForm::ring},
      gather{.context = ContextForm::gather}, mixed{.context = ContextForm::ring, .context_inner = 2},
      zero{.shards = {.level = ShardLevel::optimizer}},
      full{.shards = {.level = ShardLevel::full, .buckets = FlatBuckets::layer_group}};
  std::vector<LayoutCase> all;
  for (const char* model : {"llama", "moe", "zaya"})
    for (const bool recompute : {false, true}) {
      const bool experts = std::string(model) != "llama";
      const auto add = [&](LayoutCase c) {
        c.problem = {.model = model, .layers = 4, .rows = 8, .recompute = recompute};
        c.whole_batch = c.grid.pp == 1;
        all.push_back(std::move(c));
      };
      add({.grid = {.dp = 2}});
      add({.grid = {.dp = 4}});
      for (const int dp : {2, 4})
        for (const RankOptions& shared : {zero, full}) add({.grid = {.dp = dp}, .options = shared});
      add({.grid = {.tp = 2}});
      add({.grid = {.tp = 2}, .options = sequence});
      add({.grid = {.cp = 2}, .options = ring});
      add({.grid = {.cp = 2}, .options = gather});
      add({.grid = {.cp = 4}, .options = mixed});
      add({.grid = {.pp = 2}});
      add({.grid = {.pp = 2}, .chunks = 2, .schedule = interleaved});
      add({.grid = {.pp = 4}});
      add({.grid = {.dp = 2, .cp = 2, .tp = 2}, .options = ring});
      add({.grid = {.pp = 2, .dp = 2, .tp = 2}});
      add({.grid = {.pp = 2, .cp = 2, .tp = 2},
           .options = {.sequence_parallel = true, .context = ContextForm::gather}});
      add({.grid = {.pp = 2, .dp = 2, .cp = 2}});
      add({.grid = {.pp = 2, .dp = 2}, .options = full});
      add({.grid = {.pp = 2, .dp = 2}, .options = full, .chunks = 2, .schedule = interleaved});
      add({.grid = {.dp = 2, .cp = 4}, .options = {.context = ContextForm::gather, .context_inner = 2}});
      if (!experts) continue;
      add({.grid = {.dp = 2, .ep = 2}});
      add({.grid = {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, .options = sequence});
      add({.grid = {.pp = 2, .dp = 2, .ep = 2}, .options = full, .schedule = merged});
      for (const ShardOptions& shards : {zero.shards, full.shards})
        add({.grid = {.dp = 2, .tp = 2, .ep = 4, .etp = 1},
             .options = {.sequence_parallel = true, .shards = shards}});
      add({.grid = {.dp = 4, .tp = 2, .ep = 4, .etp = 1},
           .options = {.sequence_parallel = true, .shards = full.shards}});
      add({.grid = {.tp = 2, .etp = 2}, .options = sequence});
      add({.grid = {.dp = 2, .etp = 2}});
      add({.grid = {.dp = 4, .ep = 2, .etp = 2}});
      add({.grid = {.pp = 2, .dp = 2, .tp = 2, .ep = 4, .etp = 1},
           .options = sequence,
           .schedule = zero_bubble});
      add({.grid = {.dp = 2, .cp = 2, .tp = 2, .ep = 4, .etp = 2},
           .options = {.sequence_parallel = true, .context = ContextForm::ring}});
      add({.grid = {.dp = 2, .cp = 4, .ep = 4, .etp = 2}, .options = mixed});
    }
  return all;
}

}  // namespace ingot::test
