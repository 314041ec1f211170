// See recipe.h: reading, validation, derived settings.
#include "train/recipe.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "models/presets.h"
#include "train/objective.h"

namespace ingot {

OptimizerConfig OptimizerRecipe::resolved(int64_t total_steps, int64_t seed) const {
  OptimizerConfig c;
  c.groups.matrices = matrices;
  c.groups.others = others;
  for (const OptimizerRule& r : rules)
    c.groups.rules.push_back({r.pattern, r.optimizer, r.lr_multiplier, r.decay_multiplier});
  c.groups.not_muon = not_muon;
  c.groups.no_decay = no_decay;
  c.adamw = {beta1, beta2, eps};
  c.ademamix = {ademamix_beta3, ademamix_alpha, ademamix_warmup > 0 ? ademamix_warmup : total_steps};
  c.muon.momentum = muon_momentum;
  c.muon.momentum_start = muon_momentum_start;
  c.muon.momentum_warmup_steps = muon_momentum_warmup;
  c.muon.momentum_end = muon_momentum_end;
  c.muon.momentum_cooldown_steps = muon_momentum_cooldown;
  c.muon.total_steps = total_steps;
  c.muon.nesterov = muon_nesterov;
  c.muon.form = muon_form;
  c.muon.scale = muon_scale;
  c.weight_decay = weight_decay;
  c.muon_lr_multiplier = muon_lr_multiplier;
  c.first_moment = first_moment;
  c.second_moment = second_moment;
  c.seed = static_cast<uint64_t>(seed);
  return c;
}

double PhaseConfig::rate_factor(int64_t level) const {
  if (batch_rate == BatchRate::same) return 1.0;
  return std::sqrt(batch_fitted * static_cast<double>(batch_at(level)) / static_cast<double>(batch));
}

std::vector<std::string> Recipe::fit_batches() {
  std::vector<std::string> changes;
  for (size_t i = 0; i < phases.size(); ++i) {
    PhaseConfig& s = phases[i];
    const int64_t data = data_ranks(), unit = data * std::max<int64_t>(1, s.micro_batch), first = s.batch;
    for (int64_t level = 0; level < s.levels(); ++level) {
      const int64_t batch = s.batch_at(level), left = batch % unit;
      if (left == 0) continue;
      const int64_t fitted = batch - left + (parallel.batch_fit == BatchFit::up ? unit : 0);
      if (parallel.batch_fit == BatchFit::refuse || fitted == 0)
        throw Error(
            fmt::format("phase '{}': a batch of {} sequences does not divide among {} data ranks in "
                        "micro-batches of {}",
                        s.name, batch, data, s.micro_batch > 0 ? s.micro_batch : batch / data),
            fmt::format("choose phases.{}.batch as a multiple of {}, or set parallel.batch_fit to down or up",
                        i, unit));
      (level == 0 ? s.batch : s.batches[static_cast<size_t>(level - 1)].batch) = fitted;
      changes.push_back(
          fmt::format("phase '{}': {} sequences a step instead of {}, which {} data ranks cannot share out",
                      s.name, fitted, batch, data));
    }
    s.batch_fitted = static_cast<double>(s.batch) / static_cast<double>(first);
  }
  return changes;
}

void PhaseConfig::after_step(BatchProgress& p, double loss) const {
  constexpr double kKeep = 0.95;
  p.samples += batch_at(p.level);
  p.loss_sum = kKeep * p.loss_sum + (1 - kKeep) * loss;
  p.loss_weight = kKeep * p.loss_weight + (1 - kKeep);
  const double mean = p.loss_sum / p.loss_weight;
  while (p.level + 1 < levels()) {
    const BatchChange& next = batches[static_cast<size_t>(p.level)];
    if (next.tokens ? p.samples * sequence < *next.tokens : !(mean <= next.loss.value_or(0))) break;
    ++p.level;
  }
}

std::vector<int64_t> PhaseConfig::planned_steps() const {
  std::vector<int64_t> at_level(static_cast<size_t>(levels()), 0);
  int64_t left = steps, samples = 0;
  for (int64_t level = 0; level < levels() && left > 0; ++level) {
    const BatchChange* next = level + 1 < levels() ? &batches[static_cast<size_t>(level)] : nullptr;
    int64_t n = left;
    if (next != nullptr && next->tokens) {  // the first step count with samples * sequence >= tokens
      const int64_t step_tokens = batch_at(level) * sequence;
      n = std::clamp<int64_t>((*next->tokens - samples * sequence + step_tokens - 1) / step_tokens, 0, left);
    }
    at_level[static_cast<size_t>(level)] = n;
    samples += n * batch_at(level);
    left -= n;
  }
  return at_level;
}

int64_t PhaseConfig::tokens() const {
  int64_t samples = 0;
  const std::vector<int64_t> at_level = planned_steps();
  for (int64_t level = 0; level < levels(); ++level)
    samples += at_level[static_cast<size_t>(level)] * batch_at(level);
  return samples * sequence;
}

namespace {

void validate_batches(const PhaseConfig& s, const std::string& at, ConfigErrors& e) {
  int64_t tokens = 0;
  bool by_loss = false;
  for (size_t i = 0; i < s.batches.size(); ++i)
    if (s.batches[i].batch < 1)
      return e.add(fmt::format("{}batches.{}.batch", at, i), "must be at least 1, found {}",
                   s.batches[i].batch);
  for (size_t i = 0; i < s.batches.size(); ++i) {
    const BatchChange& c = s.batches[i];
    const std::string here = fmt::format("{}batches.{}.", at, i);
    if (s.micro_batch > 0 && c.batch % s.micro_batch != 0)
      e.add(here + "batch", "{} is not a multiple of micro_batch = {}", c.batch, s.micro_batch);
    if (c.tokens.has_value() == c.loss.has_value())
      e.add(here + "tokens", "give either tokens or loss, found {}", c.tokens ? "both" : "neither");
    if (c.loss && !(*c.loss > 0)) e.add(here + "loss", "must be positive, found {}", *c.loss);
    by_loss |= c.loss.has_value();
    if (!c.tokens) continue;
    if (*c.tokens <= tokens)
      e.add(here + "tokens", "changes must come at ascending tokens: found {} after {}", *c.tokens, tokens);
    if (!by_loss && *c.tokens >= s.tokens())
      e.add(here + "tokens", "the phase ends before: {} steps are {} tokens", s.steps, s.tokens());
    tokens = *c.tokens;
  }
}

}  // namespace

ScheduleConfig PhaseConfig::resolved_schedule(int64_t total_steps) const {
  ScheduleConfig s;
  s.kind = schedule;
  s.total_steps = total_steps;
  s.warmup_steps = warmup;
  s.min_ratio = min_lr_ratio;
  s.decay_fraction = decay_fraction;
  s.decay_shape = decay_shape;
  for (const SegmentConfig& g : segments) s.segments.push_back({g.until, g.to, g.shape});
  return s;
}

void Recipe::validate(ConfigErrors& e) const {
  if (phases.empty()) e.add("phases", "a run needs at least one phase");
  if (data.sources.empty())
    e.add("data.sources", "name at least one text source ([[data.sources]] with name and path)");
  if (data.end_of_text_first && !data.end_of_text)
    e.add("data.end_of_text_first", "data.end_of_text is false: there is no token to stand first");
  for (size_t i = 0; i < data.sources.size(); ++i) {
    const SourceConfig& s = data.sources[i];
    const std::string at = fmt::format("data.sources.{}", i);
    if (s.name.empty()) e.add(at + ".name", "must not be empty");
    if (s.path.empty()) e.add(at + ".path", "must not be empty");
    if (!(s.validation_fraction >= 0 && s.validation_fraction < 1))
      e.add(at + ".validation_fraction", "must be at least 0 and below 1, found {}", s.validation_fraction);
    if (!(s.weight >= 0)) e.add(at + ".weight", "must not be negative, found {}", s.weight);
    for (size_t j = 0; j < i; ++j)
      if (data.sources[j].name == s.name) e.add(at + ".name", "'{}' names two sources", s.name);
  }
  for (size_t i = 0; i < phases.size(); ++i) {
    const PhaseConfig& s = phases[i];
    const std::string at = fmt::format("phases.{}.", i);
    for (const auto& [name, value] :
         {std::pair<const char*, int64_t>{"steps", s.steps}, {"batch", s.batch}, {"sequence", s.sequence}})
      if (value < 1) e.add(at + name, "must be at least 1, found {}", value);
    if (s.micro_batch < 0 || (s.micro_batch > 0 && s.batch % s.micro_batch != 0))
      e.add(at + "micro_batch",
            "batch = {} is not a multiple of micro_batch = {}: the rest would be {} sequences", s.batch,
            s.micro_batch, s.micro_batch > 0 ? s.batch % s.micro_batch : 0);
    if (s.steps >= 1 && s.batch >= 1 && s.sequence >= 1) validate_batches(s, at, e);
    if (s.sequence > model.context)
      e.add(at + "sequence", "{} tokens are more than model.context = {}", s.sequence, model.context);
    if (!(s.lr > 0)) e.add(at + "lr", "must be positive, found {}", s.lr);
    if (s.rope_theta != 0 && !(s.rope_theta >= 1))
      e.add(at + "rope_theta", "must be at least 1, found {}", s.rope_theta);
    if (s.window_growth < 0) e.add(at + "window_growth", "must not be negative, found {}", s.window_growth);
    if (s.window_growth > 0 && model.window == 0)
      e.add(at + "window_growth", "model.window is 0: there is no window to grow; set it to the last one");
    if (s.rope_theta != 0 && model.position != PositionKind::rope)
      e.add(at + "rope_theta", "model.position is {}: nothing rotates", name_of(model.position));
    for (size_t w = 0; w < s.weights.size(); ++w) {
      const bool known = std::any_of(data.sources.begin(), data.sources.end(),
                                     [&](const SourceConfig& d) { return d.name == s.weights[w].source; });
      if (!known) e.add(fmt::format("{}weights.{}.source", at, w), "'{}' is no source", s.weights[w].source);
    }
    if (find_objective(s.objective) == nullptr)
      e.add(at + "objective", "'{}' is no objective; there are: {}", s.objective, objective_names());
    else if (s.objective != "cross_entropy" && memory.head == HeadMode::gradient)
      e.add(at + "objective",
            "memory.head = \"gradient\" forms the gradient of cross_entropy only; use store or recompute");
    if (s.continues && i == 0) e.add(at + "continues", "there is no phase before it");
    if (s.continues) continue;
    try {
      ingot::validate(s.resolved_schedule(schedule_steps(i)));
    } catch (const Error& error) {
      e.add(at + "schedule", "{}", error.what());
    }
  }
  for (size_t i = 0; i < data.sources.size(); ++i)
    if (data.sources[i].tail_validation && !data.sources[i].prompt_field.empty())
      e.add(fmt::format("data.sources.{}.tail_validation", i),
            "would cut a row between its prompt and its answer; hold out whole rows");
  if (data.drop_too_long && data.sampling != data::SampleMode::best_fit)
    e.add("data.drop_too_long", "only sampling = \"best_fit\" keeps documents whole, found {}",
          name_of(data.sampling));
  try {
    const OptimizerConfig o = optimizer.resolved(std::max<int64_t>(1, total_steps()), run.seed);
    ingot::validate(o.adamw);
    ingot::validate(o.ademamix);
    ingot::validate(o.muon);
    ingot::validate(optimizer.resolved_qk_clip());
  } catch (const Error& error) {
    e.add("optimizer", "{}", error.what());
  }
  if (optimizer.others == OptimizerKind::muon)
    e.add("optimizer.others", "muon needs matrices; give adamw or ademamix");
  if (optimizer.qk_clip > 0 && (model.lora.rank > 0 || !optimizer.freeze.empty()))
    e.add(
        "optimizer.qk_clip",
        "scales the projections of queries and keys, which are frozen; use logit_softcap or a smaller rate");
  if (optimizer.ademamix_warmup < 0)
    e.add("optimizer.ademamix_warmup", "must not be negative, found {}", optimizer.ademamix_warmup);
  for (size_t i = 0; i < optimizer.rules.size(); ++i)
    if (optimizer.rules[i].pattern.empty())
      e.add(fmt::format("optimizer.rules.{}.pattern", i), "must not be empty");
  if (model.moe.experts > 0 && model.moe.selection == AssignRule::expert_choice && !samples.prompts.empty())
    e.add("samples.prompts",
          "moe.selection is expert_choice, which cannot generate; use [], or selection = top_k");
  if (!(optimizer.clip >= 0)) e.add("optimizer.clip", "must not be negative, found {}", optimizer.clip);
  if (tokenizer.kind == TokenizerKind::bpe && tokenizer.path.empty() && tokenizer.vocab < 257)
    e.add("tokenizer.vocab",
          "a byte-level vocabulary needs at least 257 tokens (256 bytes and end-of-text), found {}",
          tokenizer.vocab);
}

int64_t Recipe::total_steps() const {
  int64_t n = 0;
  for (const PhaseConfig& s : phases) n += s.steps;
  return n;
}

size_t Recipe::schedule_phase(size_t phase) const {
  while (phase > 0 && phases[phase].continues) --phase;
  return phase;
}

int64_t Recipe::schedule_steps(size_t phase) const {
  size_t i = schedule_phase(phase);
  int64_t n = phases[i].steps;
  while (++i < phases.size() && phases[i].continues) n += phases[i].steps;
  return n;
}

double Recipe::learning_rate(size_t phase, int64_t step) const {
  const size_t first = schedule_phase(phase);
  for (size_t i = first; i < phase; ++i) step += phases[i].steps;
  return phases[first].lr * schedule_multiplier(phases[first].resolved_schedule(schedule_steps(first)), step);
}

int64_t Recipe::longest_sequence() const {
  int64_t n = 0;
  for (const PhaseConfig& s : phases) n = std::max(n, s.sequence);
  return n;
}

double Recipe::rope_theta_of(size_t phase) const {
  for (size_t i = std::min(phase + 1, phases.size()); i-- > 0;)
    if (phases[i].rope_theta != 0) return phases[i].rope_theta;
  return model.rope_theta;
}

int64_t Recipe::window_at(size_t phase, int64_t step) const {
  if (phase < phases.size() && phases[phase].window_fixed > 0) return phases[phase].window_fixed;
  for (size_t i = std::min(phase + 1, phases.size()); i-- > 0;) {
    const PhaseConfig& s = phases[i];
    if (s.window_growth == 0) continue;
    const double done = i == phase ? static_cast<double>(step) / static_cast<double>(s.steps) : 1.0;
    const int64_t unit = std::max<int64_t>(1, model.window_block);
    const double blocks = std::ceil(static_cast<double>(s.window_growth) * done / static_cast<double>(unit));
    return std::max<int64_t>(1, static_cast<int64_t>(blocks)) * unit;
  }
  return model.window;
}

namespace {

constexpr RenamedKey kRenamedKeys[] = {{"stages", "phases"}};

/// The preset's values under those that the recipe names.
Recipe read_with_preset(ConfigNode tree, const std::vector<std::string>& overrides, bool note_old_names) {
  for (const std::string& note : move_renamed_keys(tree, kRenamedKeys))
    if (note_old_names) log::warn("{}", note);
  Recipe defaults;
  const ConfigNode known = to_node(defaults);
  for (const std::string& argument : overrides)
    apply_override(tree, known, with_present_key(argument, kRenamedKeys));
  const ConfigNode* model = tree.find("model");
  const ConfigNode* preset = model != nullptr ? model->find("preset") : nullptr;
  if (preset != nullptr && (preset->kind == ConfigNode::Kind::string || preset->from_override) &&
      !preset->string.empty())
    defaults.model = model_preset(preset->string);
  return read_config(tree, std::move(defaults));
}

}  // namespace

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  return read_with_preset(path.empty() ? ConfigNode{} : load_toml(path), overrides, true);
}

Recipe recipe_from_toml(const std::string& text, const std::string& where) {
  return read_with_preset(parse_toml(text, where), {}, false);
}

}  // namespace ingot
