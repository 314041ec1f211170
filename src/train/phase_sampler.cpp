// See phase_sampler.h.
#include "train/phase_sampler.h"

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

/// The prepared sources with their shares in the phase.
std::vector<data::SamplerSource> phase_sources(const Recipe& recipe, const PreparedData& data,
                                               const PhaseConfig& phase) {
  std::vector<data::SamplerSource> sources;
  for (size_t i = 0; i < data.sources.size(); ++i) {
    const SourceConfig& c = recipe.data.sources[i];
    double weight = phase.weights.empty() ? c.weight : 0;
    for (const SourceWeight& w : phase.weights)
      if (w.source == c.name) weight = w.weight;
    sources.push_back({data.sources[i].train(), weight});
  }
  return sources;
}

}  // namespace

std::string SavedRun::json() const {
  return nlohmann::json{
      {"step", step},
      {"stage", phase},
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

PhaseSampler::PhaseSampler(const Recipe& recipe, const PreparedData& data) : recipe_(&recipe), data_(&data) {
  enter(0, nullptr);
}

PhaseSampler::PhaseSampler(const Recipe& recipe, const PreparedData& data, const CheckpointReader& reader)
    : recipe_(&recipe), data_(&data) {
  const SavedRun saved = SavedRun::of(reader);
  const size_t phase = saved.phase;
  if (phase >= recipe.phases.size())
    fail("'{}' is in phase {}, but the recipe has {} phases", reader.path(), phase + 1, recipe.phases.size());
  const data::SamplerState state =
      data::parse_sampler_state(reader.blob("sampler"), reader.path() + ": sampler");
  enter(phase, &state);
  if (saved.progress.level < 0 || saved.progress.level >= config().levels())
    fail("'{}' is at batch size {} of phase '{}', which has {}", reader.path(), saved.progress.level + 1,
         config().name, config().levels());
  progress_ = saved.progress;
  progress_.samples = state.samples - state.phase_begin;
  change_batch(saved.step);
}

void PhaseSampler::change_batch(int64_t step) {
  level_ = progress_.level;
  level_step_ = step;
  level_samples_ = progress_.samples;
}

void PhaseSampler::enter(size_t phase, const data::SamplerState* state) {
  phase_ = phase;
  first_step_ = 0;
  for (size_t i = 0; i < phase; ++i) first_step_ += recipe_->phases[i].steps;
  data::SamplerOptions o;
  o.seed = static_cast<uint64_t>(recipe_->run.seed);
  o.sequence_length = config().sequence;
  o.mode = recipe_->data.sampling;
  o.rows = recipe_->data.rows();
  o.drop_too_long = recipe_->data.drop_too_long;
  sampler_.emplace(phase_sources(*recipe_, *data_, config()), o, state);
  progress_ = {};
  change_batch(first_step_);
}

void PhaseSampler::advance() {
  INGOT_CHECK(phase_ + 1 < recipe_->phases.size(), "phase {} is the last", phase_);
  const data::SamplerState next = data::next_phase(state(), recipe_->phases[phase_ + 1].sequence);
  enter(phase_ + 1, &next);
}

data::Batch PhaseSampler::batch(int64_t step) const {
  const int64_t rows = config().batch_at(level_);
  return sampler_->batch(sampler_->phase_begin() + level_samples_ + (step - level_step_) * rows, rows);
}

}  // namespace ingot
