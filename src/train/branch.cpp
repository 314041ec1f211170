// See branch.h.
#include "train/branch.h"

#include <algorithm>

#include "base/log.h"
#include "checkpoint/model_state.h"
#include "checkpoint/parameter_part.h"
#include "exchange/import.h"
#include "tensor/convert.h"
#include "train/phase_sampler.h"

namespace ingot {
namespace {

/// Whether a line of architecture_differences() is about how positions are seen, which a branch may change.
bool may_differ(const std::string& line) {
  constexpr const char* kFree[] = {"rope_scaling.", "rope_theta:", "context:", "window"};
  return std::any_of(std::begin(kFree), std::end(kFree),
                     [&](const char* field) { return line.starts_with(field); });
}

void require_same_model(const StoredModel& trunk, const Recipe& recipe, const std::string& tokenizer) {
  std::string differences;
  for (const std::string& line : architecture_differences(trunk.config, recipe.model))
    if (!may_differ(line)) differences += "\n  " + line;
  if (!differences.empty())
    throw Error(
        fmt::format("run.branch_from: '{}' holds another model than the recipe's (field: its value, the "
                    "recipe's):{}",
                    trunk.reader.path(), differences),
        "take over the model section of that run's config.toml");
  const std::string trained_with = SavedRun::of(trunk.reader).tokenizer;
  if (!tokenizer.empty() && trained_with != tokenizer)
    throw Error(fmt::format("run.branch_from: '{}' was trained with tokenizer {}, the recipe's is {}",
                            trunk.reader.path(), trained_with, tokenizer),
                "set tokenizer.path to the tokenizer of that run");
}

/// "momentum" of "optimizer/layers.0.mlp.up.weight.momentum", and what stands before it.
std::pair<std::string, std::string> split_slot(const std::string& state) {
  const size_t dot = state.rfind('.');
  return {state.substr(0, dot), state.substr(dot + 1)};
}

class OptimizerReader {
 public:
  OptimizerReader(const StoredModel& trunk, TrainEngine& engine)
      : reader_(trunk.reader),
        engine_(engine),
        now_(engine.recipe().optimizer),
        then_(recipe_from_toml(config_of_blob(reader_, "recipe"), reader_.path() + ": recipe").optimizer) {}

  void keep() {
    engine_.visit_parameter_state([&](const TrainEngine::ParameterState& s) {
      const auto stored = reader_.tensors().find(s.name);
      if (stored == reader_.tensors().end()) refuse(s, "the trunk's optimizer has no such state");
      if (stored->second.meta.dtype != s.values.dtype())
        refuse(s, fmt::format("it is stored as {}, the recipe wants {}", name_of(stored->second.meta.dtype),
                              name_of(s.values.dtype())));
      if (slot_of(s) == "momentum" && then_.muon.form != now_.muon.form)
        refuse(s, fmt::format("optimizer.muon.form was {} and is {}", name_of(then_.muon.form),
                              name_of(now_.muon.form)));
      read(s, s.name, 1);
    });
    read_common();
  }

  // A momentum m is a sum of gradients that fade, m <- mu m + g; a first moment, and a momentum of form lerp,
  // is their mean, m <- mu m + (1 - mu) g.
  void convert() {
    engine_.visit_parameter_state([&](const TrainEngine::ParameterState& s) {
      const auto [parameter, slot] = split_slot(s.name);
      const double to_sum = 1 / (1 - now_.muon.momentum), to_mean = 1 - then_.muon.momentum;
      const bool sum_now = now_.muon.form == MomentumForm::sum,
                 sum_then = then_.muon.form == MomentumForm::sum;
      if (has(s.name)) {
        const bool form_changes = slot == "momentum" && sum_now != sum_then;
        return read(s, s.name, !form_changes ? 1 : sum_now ? to_sum : to_mean);
      }
      if (slot == "momentum" && has(parameter + ".exp_avg"))
        return read(s, parameter + ".exp_avg", sum_now ? to_sum : 1);
      if (slot == "exp_avg_slow") return;  // AdEMAMix's slow average starts at zero
      refuse(s, "nothing in the trunk's optimizer corresponds to it");
    });
    read_common();
  }

 private:
  bool has(const std::string& name) const { return reader_.tensors().contains(name); }
  static std::string slot_of(const TrainEngine::ParameterState& s) { return split_slot(s.name).second; }

  void read(const TrainEngine::ParameterState& s, const std::string& name, double factor) {
    const WeightSet& weights = engine_.model().weights();
    read_part(reader_, name, {weights.table()[s.parameter], weights.placement(), s.values, s.begin});
    if (factor == 1) return;
    std::vector<double> values = to_doubles(s.values);
    for (double& value : values) value *= factor;
    store_rounded(s.values, values);
  }

  void read_common() {
    engine_.visit_common_state([&](const std::string& name, const Tensor& t) {
      if (has(name)) reader_.read(name, t);
    });
  }

  [[noreturn]] void refuse(const TrainEngine::ParameterState& s, const std::string& why) const {
    throw Error(fmt::format("run.branch_from: the state '{}' cannot be taken from '{}': {}", s.name,
                            reader_.path(), why),
                "set run.branch_optimizer = \"convert\", or \"reset\" to begin with a new optimizer");
  }

  const CheckpointReader& reader_;
  TrainEngine& engine_;
  const OptimizerConfig &now_, then_;
};

}  // namespace

StoredModel open_trunk(FileSystem& fs, const Recipe& recipe, const std::string& tokenizer) {
  StoredModel trunk = open_stored_model(fs, recipe.run.branch_from);
  if (trunk.reader.manifest().blobs.contains(kImportBlob) ||
      !trunk.reader.manifest().blobs.contains("trainer"))
    throw Error(
        fmt::format("run.branch_from: '{}' holds a model, not the state of a run", trunk.reader.path()),
        "begin from its weights alone: run.start_from");
  require_same_model(trunk, recipe, tokenizer);
  const int64_t step = SavedRun::of(trunk.reader).step;
  if (step >= recipe.total_steps())
    throw Error(fmt::format("run.branch_from: '{}' stands at step {}, the recipe ends at step {}",
                            trunk.reader.path(), step, recipe.total_steps()),
                "the phases of a branch count from the first step of the trunk: give them more steps");
  return trunk;
}

void restore_trunk_optimizer(const StoredModel& trunk, TrainEngine& engine) {
  OptimizerReader optimizer(trunk, engine);
  switch (engine.recipe().run.branch_optimizer) {
    case BranchOptimizer::keep:
      return optimizer.keep();
    case BranchOptimizer::convert:
      return optimizer.convert();
    case BranchOptimizer::reset:
      return;
  }
}

}  // namespace ingot
