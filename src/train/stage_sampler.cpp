// See stage_sampler.h.
#include "train/stage_sampler.h"

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

/// The prepared sources with their shares in the stage.
std::vector<data::SamplerSource> stage_sources(const Recipe& recipe, const PreparedData& data,
                                               const StageConfig& stage) {
  std::vector<data::SamplerSource> sources;
  for (size_t i = 0; i < data.sources.size(); ++i) {
    const SourceConfig& c = recipe.data.sources[i];
    double weight = stage.weights.empty() ? c.weight : 0;
    for (const SourceWeight& w : stage.weights)
      if (w.source == c.name) weight = w.weight;
    sources.push_back({data.sources[i].train(), weight});
  }
  return sources;
}

}  // namespace

std::string SavedRun::json() const {
  return nlohmann::json{
      {"step", step},
      {"stage", stage},
      {"tokens", tokens},
      {"tokenizer", tokenizer},
      {"kernels", kernels},
      {"batch",
       {{"level", progress.level}, {"loss_sum", progress.loss_sum}, {"loss_weight", progress.loss_weight}}}}
      .dump();
}

SavedRun SavedRun::of(const CheckpointReader& reader) {
  try {
    const auto j = nlohmann::json::parse(reader.blob("trainer"));
    BatchProgress progress;
    if (const auto batch = j.find("batch"); batch != j.end())
      progress = {batch->at("level"), 0, batch->at("loss_sum"), batch->at("loss_weight")};
    return {j.at("step"), j.at("tokens"), j.at("stage"), j.at("tokenizer"), j.at("kernels"), progress};
  } catch (const nlohmann::json::exception& e) {
    fail("'{}': the state 'trainer' is damaged: {}", reader.path(), e.what());
  }
}

StageSampler::StageSampler(const Recipe& recipe, const PreparedData& data) : recipe_(&recipe), data_(&data) {
  enter(0, nullptr);
}

StageSampler::StageSampler(const Recipe& recipe, const PreparedData& data, const CheckpointReader& reader)
    : recipe_(&recipe), data_(&data) {
  const SavedRun saved = SavedRun::of(reader);
  const size_t stage = saved.stage;
  if (stage >= recipe.stages.size())
    fail("'{}' is in stage {}, but the recipe has {} stages", reader.path(), stage + 1, recipe.stages.size());
  const data::SamplerState state =
      data::parse_sampler_state(reader.blob("sampler"), reader.path() + ": sampler");
  enter(stage, &state);
  if (saved.progress.level < 0 || saved.progress.level >= config().levels())
    fail("'{}' is at batch size {} of stage '{}', which has {}", reader.path(), saved.progress.level + 1,
         config().name, config().levels());
  progress_ = saved.progress;
  progress_.samples = state.samples - state.stage_begin;
  change_batch(saved.step);
}

void StageSampler::change_batch(int64_t step) {
  level_ = progress_.level;
  level_step_ = step;
  level_samples_ = progress_.samples;
}

void StageSampler::enter(size_t stage, const data::SamplerState* state) {
  stage_ = stage;
  first_step_ = 0;
  for (size_t i = 0; i < stage; ++i) first_step_ += recipe_->stages[i].steps;
  data::SamplerOptions o;
  o.seed = static_cast<uint64_t>(recipe_->run.seed);
  o.sequence_length = config().sequence;
  o.mode = recipe_->data.sampling;
  o.rows = recipe_->data.rows();
  o.drop_too_long = recipe_->data.drop_too_long;
  sampler_.emplace(stage_sources(*recipe_, *data_, config()), o, state);
  progress_ = {};
  change_batch(first_step_);
}

void StageSampler::advance() {
  INGOT_CHECK(stage_ + 1 < recipe_->stages.size(), "stage {} is the last", stage_);
  const data::SamplerState next = data::next_stage(state(), recipe_->stages[stage_ + 1].sequence);
  enter(stage_ + 1, &next);
}

data::Batch StageSampler::batch(int64_t step) const {
  const int64_t rows = config().batch_at(level_);
  return sampler_->batch(sampler_->stage_begin() + level_samples_ + (step - level_step_) * rows, rows);
}

}  // namespace ingot
