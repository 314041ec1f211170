// See phase_sampler.h.
#include "train/phase_sampler.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/model_state.h"
#include "train/phase_kind.h"

namespace ingot {
namespace {

int64_t first_step_of(const Recipe& recipe, size_t phase) {
  int64_t first = 0;
  for (size_t i = 0; i < phase; ++i) first += recipe.phases[i].steps;
  return first;
}

data::SamplerState sampler_state(const CheckpointReader& reader) {
  return data::parse_sampler_state(reader.blob("sampler"), reader.path() + ": sampler");
}

/// What stands around reasoning; nothing where the tags are no tokens: then too long rows are refused.
std::optional<data::ReasoningMarks> reasoning_marks(const ChatConfig& chat, const Tokenizer& tokenizer) {
  const auto id_of = [&](const std::string& tag) {
    if (const auto special = tokenizer.special_id(tag)) return *special;
    try {
      const std::vector<int32_t> ids = tokenizer.encode(tag);
      return ids.size() == 1 ? ids[0] : -1;
    } catch (const Error&) {  // a vocabulary of characters that lacks one of the tag's
      return -1;
    }
  };
  data::ReasoningMarks marks{id_of(chat.think_open), id_of(chat.think_close), {}};
  if (marks.open < 0 || marks.close < 0) return std::nullopt;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    marks.space.push_back(!bytes.empty() && bytes.find_first_not_of(" \t\r\n") == std::string::npos);
  }
  return marks;
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

std::vector<data::SamplerSource> phase_sources(const Recipe& recipe, const PreparedData& data,
                                               const PhaseConfig& phase) {
  std::vector<data::SamplerSource> sources;
  for (size_t i = 0; i < data.sources.size(); ++i) {
    const SourceConfig& c = recipe.data.sources[i];
    const PhaseKind& kind = kind_of(phase);
    double weight = phase.weights.empty() && (!kind.reads || kind.reads(c)) ? c.weight : 0;
    for (const SourceWeight& w : phase.weights)
      if (w.source == c.name) weight = w.weight;
    sources.push_back({data.sources[i].train(), weight, kind.replays_text && !kind.reads(c)});
  }
  return sources;
}

data::SamplerOptions sampler_options(const Recipe& recipe, const PreparedData& data, size_t phase) {
  const PhaseConfig& config = recipe.phases[phase];
  const KindSampling how = kind_of(config).sampling(recipe, config);
  data::SamplerOptions o;
  o.seed = static_cast<uint64_t>(recipe.run.seed);
  o.sequence_length = config.sequence;
  o.mode = how.mode;
  o.rows = how.rows;
  o.drop_too_long = how.drop_too_long;
  o.group = how.group;
  if (how.trims) o.marks = reasoning_marks(*config.chat, data.tokenizer);
  return o;
}

data::Sampler sampler_of_phase(const Recipe& recipe, const PreparedData& data, size_t phase,
                               const data::SamplerState* state) {
  return {phase_sources(recipe, data, recipe.phases[phase]), sampler_options(recipe, data, phase), state};
}

RowPlan plan_rows(const Recipe& recipe, const PreparedData& data, size_t phase) {
  constexpr int64_t kFewSteps = 30;
  const PhaseConfig& config = recipe.phases[phase];
  RowPlan plan;
  if (!kind_of(config).sampling || config.kind == "text") return plan;
  const data::Sampler sampler = sampler_of_phase(recipe, data, phase);
  std::vector<data::SamplerSource> sources = phase_sources(recipe, data, config);
  std::sort(sources.begin(), sources.end(),
            [](const auto& a, const auto& b) { return a.split->source() < b.split->source(); });
  double weights = 0, documents = 0;
  for (const data::SamplerSource& s : sources) weights += s.weight;
  const auto rows = static_cast<double>(config.tokens() / config.sequence);
  for (size_t s = 0; s < sources.size(); ++s) {
    if (sources[s].weight <= 0) continue;
    const data::Sampler::PackedSource p = sampler.packed(s);
    const double share = sources[s].weight / weights, packed = static_cast<double>(sampler.epoch_samples(s));
    documents += share * static_cast<double>(p.documents) / packed;
    std::string line = fmt::format(
        "{}: {} documents in {} {}, {:.0f} % full; {:.0f} % of the phase, {:.2f} epochs",
        sources[s].split->source(), p.documents, sampler.epoch_samples(s),
        sources[s].windows ? "windows" : "rows", 100 * p.fill, 100 * share, rows * share / packed);
    if (const int64_t cut = p.shortened + p.earlier_removed; cut > 0)
      line += fmt::format("; {} longer than a row keep {:.0f} % of their reasoning", cut,
                          100 * static_cast<double>(p.reasoning_left) / static_cast<double>(p.reasoning));
    if (p.dropped > 0)
      plan.warnings.push_back(
          fmt::format("phase '{}': {} of {} documents of '{}' do not fit a row of {} tokens", config.name,
                      p.dropped, p.documents, sources[s].split->source(), config.sequence));
    plan.lines.push_back(std::move(line));
  }
  if (config.steps < kFewSteps)
    plan.warnings.push_back(
        fmt::format("phase '{}' makes {} steps: packing puts {:.0f} documents into each; a smaller batch "
                    "makes more updates",
                    config.name, config.steps, documents * static_cast<double>(config.batch)));
  return plan;
}

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
    const data::SamplerState next = sampler.following(state, phase);
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
  if (sampler_) progress_.samples = state.samples - state.phase_begin;
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

int64_t PhaseSampler::micro_batch() const {
  return micro_rows(config(), level_, recipe_->data_ranks());
}

data::SamplerState PhaseSampler::state() const {
  return sampler_ ? sampler_->state_at(sampler_->phase_begin() + progress_.samples) : carried_;
}

/// With which state a phase begins where another one, of another kind or not, has ended with `state`.
data::SamplerState PhaseSampler::following(const data::SamplerState& state, size_t phase) const {
  const PhaseConfig& next = recipe_->phases[phase];
  const PhaseKind& kind = kind_of(next);
  if (!kind.sampling) return data::next_phase(state, state.sequence_length);
  return data::next_phase(state, next.sequence, kind.sampling(*recipe_, next).mode);
}

void PhaseSampler::enter(size_t phase, const data::SamplerState* state) {
  phase_ = phase;
  first_step_ = first_step_of(*recipe_, phase);
  if (kind_of(config()).sampling) {
    sampler_.emplace(sampler_of_phase(*recipe_, *data_, phase, state));
  } else {
    sampler_.reset();
    carried_ = state != nullptr ? *state
                                : data::SamplerState{.seed = static_cast<uint64_t>(recipe_->run.seed),
                                                     .sequence_length = config().sequence};
  }
  progress_ = {};
  change_batch(first_step_);
}

void PhaseSampler::advance() {
  INGOT_CHECK(phase_ + 1 < recipe_->phases.size(), "phase {} is the last", phase_);
  const data::SamplerState next = following(state(), phase_ + 1);
  enter(phase_ + 1, &next);
}

data::Batch PhaseSampler::batch(int64_t step) const {
  INGOT_CHECK(sampler_, "phases of kind '{}' do not sample", config().kind);
  const int64_t rows = config().batch_at(level_);
  return sampler_->batch(sampler_->phase_begin() + level_samples_ + (step - level_step_) * rows, rows);
}

}  // namespace ingot
