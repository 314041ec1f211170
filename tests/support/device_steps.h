// Steps of small models on a device, and what they measured and left, for comparisons with the CPU's.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "support/small_models.h"
#include "support/support.h"
#include "train/engine.h"

namespace ingot::test {

inline constexpr int64_t kLength = 32;

/// A recipe of the small model, with Muon for its matrices, clipping, and two micro-batches in a step.
/// "MODEL clip": heads are clipped too. "MODEL loads": its balance loss goes by the loads of the step before;
/// "MODEL own": by those of its micro-batch. "MODEL rounded": inputs of its products wait in FP8.
inline Recipe recipe_of(const std::string& name) {
  const std::string model = name.substr(0, name.find(' '));
  Recipe r;
  r.model = small_model_config(model);
  if (name.ends_with(" clip")) r.optimizer.qk_clip.threshold = 0.02;
  if (name.ends_with(" loads")) r.model.moe.aux_scope = AuxScope::last_step;
  if (name.ends_with(" own")) r.model.moe.aux_scope = AuxScope::micro_batch;
  if (name.ends_with(" rounded")) r.memory.fp8 = {"activation", "add_norm.h", "permute.rows"};
  r.run.folder = "unused";
  r.optimizer.clip = 0.5;
  PhaseConfig& phase = r.phases.front();
  phase.name = "only";
  phase.steps = 10, phase.batch = 4, phase.micro_batch = 2, phase.sequence = kLength;
  phase.z_coefficient = 1e-4;
  return r;
}

/// The name of a test of such a model: only letters and `_`.
inline std::string test_name_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < 'a'; }, '_');
  return name;
}

inline data::Batch batch_of(const Recipe& r, uint64_t seed) {
  return packed_batch(4, kLength, {9, 23, 1, 31, 30, 2, 32}, r.model.vocab, seed);
}

/// Bytes of all weights and of the optimizer's state.
inline std::map<std::string, std::string> state_of(TrainEngine& engine) {
  std::map<std::string, std::string> state;
  const auto keep = [&](const std::string& name, const Tensor& t) {
    state[name].assign(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
  };
  const WeightSet& weights = engine.model().weights();
  for (int i = 0; i < weights.size(); ++i) keep(weights.table()[i].name, weights.master(i));
  engine.visit_parameter_state([&](const TrainEngine::ParameterState& s) { keep(s.name, s.values); });
  engine.visit_common_state(keep);
  for (const int64_t layer : engine.model().decoder().moe_layers())
    keep(Model::router_bias_name(layer), engine.model().router_bias(layer));
  return state;
}

inline StepOutcome step(TrainEngine& engine, const data::Batch& batch, double lr = 0.01) {
  const int64_t micro_batch = 2 / engine.ranks().world().ranks();
  return engine.step(batch, {.options = engine.options(0, micro_batch), .lr = lr});
}

/// What a step measured: losses, norms and sizes of updates.
inline void measure(TrainEngine& engine, const data::Batch& batch, double lr, std::vector<double>& measured) {
  const StepOutcome o = step(engine, batch, lr);
  for (const double v : {o.stats.nll, o.stats.objective, o.norm.norm, double(o.clipped_heads)})
    measured.push_back(v);
  for (const auto& [layer, entropy] : o.stats.router_entropy) measured.push_back(entropy);
  for (const UpdateStat& u : engine.optimizer().update_stats()) measured.push_back(u.update_rms);
}
inline std::vector<double> steps(TrainEngine& engine, int count) {
  std::vector<double> measured;
  for (int i = 0; i < count; ++i)
    measure(engine, batch_of(engine.recipe(), static_cast<uint64_t>(i)), 0.01 / (i + 1), measured);
  return measured;
}

/// Lengths of the documents of a batch, of other numbers of them: few, many, and more than a graph takes.
inline std::vector<int64_t> document_lengths(int kind) {
  if (kind == 0) return {9, 23, 1, 31, 30, 2, 32};
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t at = 0, most = kind == 1 ? 3 : 2; at < kLength; at += most)
      lengths.push_back(std::min(most, kLength - at));
  return lengths;
}
/// What eight steps measured whose documents differ: in the third from the last there are more than a graph
/// takes.
inline std::vector<double> steps_of_other_documents(TrainEngine& engine) {
  std::vector<double> measured;
  const int kinds[] = {0, 1, 0, 1, 0, 2, 0, 1};
  for (size_t i = 0; i < std::size(kinds); ++i)
    measure(engine,
            packed_batch(4, kLength, document_lengths(kinds[i]), engine.recipe().model.vocab, 100 + i),
            0.01 / static_cast<double>(i + 1), measured);
  return measured;
}
/// Of eight steps of two micro-batches: two steps and the one with more documents were eager; of each
/// capacity of the list two graphs were captured.
inline void expect_graphs_of_other_documents(const TrainEngine& engine) {
  const MicroGraphCounts counts = engine.graph_counts();
  EXPECT_EQ(counts.eager, 6);
  EXPECT_EQ(counts.captured, 4);
  EXPECT_EQ(counts.replayed, 10);
}

}  // namespace ingot::test
