// See phase_sampler.h.
#include "train/phase_sampler.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/model_state.h"

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

int64_t first_step_of(const Recipe& recipe, size_t phase) {
  int64_t first = 0;
  for (size_t i = 0; i < phase; ++i) first += recipe.phases[i].steps;
  return first;
}

data::SamplerState sampler_state(const CheckpointReader& reader) {
  return data::parse_sampler_state(reader.blob("sampler"), reader.path() + ": sampler");
}

/// Whether the sources have the weights that they have in the state's phase.
bool has_mixture(const data::SamplerState& state, const std::vector<data::SamplerSource>& sources) {
  std::map<std::string, double> then, now;
  for (const data::SourceState& s : state.sources)
    if (s.weight > 0) then[s.name] = s.weight;
  for (const data::SamplerSource& s : sources)
    if (s.weight > 0) now[s.split->source()] = s.weight;
  return then == now;
}

}  // namespace

std::string SavedRun::json() const {
  nlohmann::json j{
      {"step", step},
      {"stage", phase},
      {"tokens", tokens},
      {"tokenizer", tokenizer},
      {"kernels", kernels},
      {"batch",
       {{"level", progress.level}, {"loss_sum", progress.loss_sum}, {"loss_weight", progress.loss_weight}}}};
  for (const Rewound& r : rewound) j["rewound"].push_back({r.to_step, r.skipped_batches});
  return j.dump();
}

SavedRun SavedRun::of(const CheckpointReader& reader) {
  try {
    const auto j = nlohmann::json::parse(reader.blob("trainer"));
    BatchProgress progress;
    if (const auto batch = j.find("batch"); batch != j.end())
      progress = {batch->at("level"), 0, batch->at("loss_sum"), batch->at("loss_weight")};
    std::vector<Rewound> rewound;
    if (const auto list = j.find("rewound"); list != j.end())
      for (const auto& r : *list) rewound.push_back({r.at(0), r.at(1)});
    return {j.at("step"),    j.at("tokens"), j.at("stage"),     j.at("tokenizer"),
            j.at("kernels"), progress,       std::move(rewound)};
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
  if (saved.phase >= recipe.phases.size())
    fail("'{}' is in phase {}, but the recipe has {} phases", reader.path(), saved.phase + 1,
         recipe.phases.size());
  resume(saved.phase, sampler_state(reader), saved, reader.path());
}

PhaseSampler PhaseSampler::branch(const Recipe& recipe, const PreparedData& data,
                                  const CheckpointReader& trunk) {
  const SavedRun saved = SavedRun::of(trunk);
  const Recipe then = recipe_from_toml(config_of_blob(trunk, "recipe"), trunk.path() + ": recipe");
  const data::SamplerState state = sampler_state(trunk);
  size_t phase = 0;
  while (first_step_of(recipe, phase) + recipe.phases[phase].steps < saved.step) ++phase;
  PhaseSampler sampler(Unset(), recipe, data);
  const PhaseConfig& now = recipe.phases[phase];
  if (saved.phase < then.phases.size() && first_step_of(then, saved.phase) == first_step_of(recipe, phase) &&
      state.sequence_length == now.sequence && has_mixture(state, phase_sources(recipe, data, now))) {
    sampler.resume(phase, state, saved, trunk.path());
  } else {
    const data::SamplerState next = data::next_phase(state, now.sequence);
    sampler.enter(phase, &next);
    sampler.change_batch(saved.step);
  }
  return sampler;
}

void PhaseSampler::resume(size_t phase, const data::SamplerState& state, const SavedRun& saved,
                          const std::string& where) {
  enter(phase, &state);
  if (saved.progress.level < 0 || saved.progress.level >= config().levels())
    fail("'{}' is at batch size {} of phase '{}', which has {}", where, saved.progress.level + 1,
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

void PhaseSampler::skip(int64_t step, int64_t batches) {
  progress_.samples += batches * config().batch_at(progress_.level);
  change_batch(step);
}

void PhaseSampler::enter(size_t phase, const data::SamplerState* state) {
  phase_ = phase;
  first_step_ = first_step_of(*recipe_, phase);
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
