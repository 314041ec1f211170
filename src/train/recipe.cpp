// See recipe.h: reading, validation, derived settings.
#include "train/recipe.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "models/presets.h"
#include "train/phase_kind.h"
#include "train/run_tasks.h"

namespace ingot {

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
      changes.push_back(fmt::format(
          "phase '{}': {} sequences a step instead of {}, which do not divide among {} data ranks", s.name,
          fitted, batch, data));
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
    samples += checked_product({at_level[static_cast<size_t>(level)], batch_at(level)},
                               "sequences of phase '" + name + "' (steps x batch)");
  return checked_product({samples, sequence}, "tokens of phase '" + name + "' (sequences x sequence)");
}

ScheduleConfig PhaseConfig::resolved_schedule(int64_t total_steps) const {
  return {.kind = schedule,
          .total_steps = total_steps,
          .warmup_steps = warmup,
          .min_ratio = min_lr_ratio,
          .decay_fraction = decay_fraction,
          .decay_shape = decay_shape,
          .segments = segments};
}

namespace {

void validate_batches(const PhaseConfig& s, ConfigErrors& e) {
  int64_t tokens = 0;
  bool by_loss = false;
  for (size_t i = 0; i < s.batches.size(); ++i) {
    const BatchChange& c = s.batches[i];
    const std::string here = fmt::format("batches.{}.", i);
    if (s.micro_batch > 0 && c.batch % s.micro_batch != 0)
      e.add(here + "batch", "{} is not a multiple of micro_batch = {}", c.batch, s.micro_batch);
    if (c.tokens.has_value() == c.loss.has_value())
      e.add(here + "tokens", "give either tokens or loss, found {}", c.tokens ? "both" : "neither");
    by_loss |= c.loss.has_value();
    if (!c.tokens) continue;
    if (*c.tokens <= tokens)
      e.add(here + "tokens", "changes must come at ascending tokens: found {} after {}", *c.tokens, tokens);
    if (!by_loss && *c.tokens >= s.tokens())
      e.add(here + "tokens", "the phase ends before: {} steps are {} tokens", s.steps, s.tokens());
    tokens = *c.tokens;
  }
}

/// What a phase asks of the other sections and of the phases before it.
void validate_phase(const Recipe& r, size_t i, ConfigErrors& e) {
  const PhaseConfig& s = r.phases[i];
  const std::string at = fmt::format("phases.{}.", i);
  if (s.sequence > r.model.context)
    e.add(at + "sequence", "{} tokens are more than model.context = {}", s.sequence, r.model.context);
  if (s.window_growth > 0 && r.model.window == 0)
    e.add(at + "window_growth", "model.window is 0: there is no window to grow; set it to the last one");
  if (s.rope_theta != 0 && r.model.position != PositionKind::rope)
    e.add(at + "rope_theta", "model.position is {}: nothing rotates", name_of(r.model.position));
  for (size_t w = 0; w < s.weights.size(); ++w) {
    const auto is_it = [&](const SourceConfig& d) { return d.name == s.weights[w].source; };
    if (std::none_of(r.data.sources.begin(), r.data.sources.end(), is_it))
      e.add(fmt::format("{}weights.{}.source", at, w), "'{}' is no source", s.weights[w].source);
  }
  const PhaseKind* kind = find_phase_kind(s.kind);
  if (kind != nullptr) kind->validate(r, i, e);
  if (kind != nullptr && !kind->sampling && !s.batches.empty())
    e.add(at + "batches", "a phase of kind {} has one batch size", s.kind);
  if (s.chat && s.kind != "chat") e.add(at + "chat", "is of kind chat, and this phase is of kind {}", s.kind);
  if (s.preference && s.kind != "preference" && s.kind != "own_preference")
    e.add(at + "preference", "is of kind preference or own_preference, and this phase is of kind {}", s.kind);
  if (s.own_pairs && s.kind != "own_preference")
    e.add(at + "own_pairs", "is of kind own_preference, and this phase is of kind {}", s.kind);
  if (kind == nullptr)
    e.add(at + "kind", "'{}' is no kind of phases; there are: {}", s.kind, phase_kind_names());
  try {
    if (!s.gate.empty()) TaskGate::parse(s.gate);
  } catch (const Error& error) {
    e.add(at + "gate", "{}; {}", error.what(), error.hint());
  }
  const auto is_target = [&](const SourceConfig& d) {
    return d.name == s.target_source && d.validation_fraction > 0;
  };
  if (s.target_loss > 0 && std::none_of(r.data.sources.begin(), r.data.sources.end(), is_target))
    e.add(at + "target_source", "target_loss needs a source with validation text; '{}' is none",
          s.target_source);
  if (s.target_loss > 0 && r.evaluation.every <= 0)
    e.add("evaluation.every", "0 validates at the end only, so the target of phase '{}' would not be seen",
          s.name);
  if (s.target_ends && s.target_loss == 0) e.add(at + "target_ends", "target_loss is 0: there is no target");
  if (s.continues && i == 0) e.add(at + "continues", "there is no phase before it");
  if (s.continues) return;
  try {
    ingot::validate(s.resolved_schedule(r.schedule_steps(i)));
  } catch (const Error& error) {
    e.add(at + "schedule", "{}", error.what());
  }
}

}  // namespace

void PhaseConfig::validate(ConfigErrors& e) const {
  if (micro_batch > 0 && batch % micro_batch != 0)
    e.add("micro_batch", "batch = {} is not a multiple of micro_batch = {}: {} would be left over", batch,
          micro_batch, batch % micro_batch);
  int64_t largest = batch, product = 0;
  for (const BatchChange& c : batches) largest = std::max(largest, c.batch);
  if (!multiply({steps, largest, sequence}, product) || product > static_cast<int64_t>(bounds::kTokens))
    return e.add("steps", "{} steps of {} sequences of {} tokens are more than {:g} tokens", steps, largest,
                 sequence, bounds::kTokens);
  validate_batches(*this, e);
}

namespace {

/// Where masters or gradients in bf16 cannot be.
void validate_storage(const Recipe& r, ConfigErrors& e) {
  const bool masters = r.optimizer.master != ValueStorage::f32,
             gradients = r.optimizer.gradient != ValueStorage::f32;
  if (masters && r.run.precision == PrecisionChoice::f32)
    e.add("optimizer.master", "products of an f32 run read masters in f32; use run.precision = \"bf16\"");
  if (masters && r.parallel.shard != ShardLevel::none)
    e.add("optimizer.master",
          "masters in bf16 are not sharded; use parallel.shard = \"none\", or master = \"f32\"");
  if (gradients && r.parallel.shard == ShardLevel::optimizer)
    e.add("optimizer.gradient",
          "parallel.shard = \"optimizer\" sums gradients in place, in fp32; use \"full\" or \"none\", or "
          "gradient = "
          "\"f32\"");
  if (gradients && r.parallel.pipeline * r.parallel.chunks > 1)
    e.add("optimizer.gradient", "the stages of a pipeline sum gradients in fp32; use gradient = \"f32\"");
}

}  // namespace

void Recipe::validate(ConfigErrors& e) const {
  if (!run.start_from.empty() && !run.branch_from.empty())
    e.add("run.branch_from", "a run begins from one of start_from and branch_from");
  if (phases.empty()) e.add("phases", "a run needs at least one phase");
  if (data.sources.empty())
    e.add("data.sources", "name at least one text source ([[data.sources]] with name and path)");
  for (size_t i = 0; i < phases.size(); ++i) validate_phase(*this, i, e);
  try {
    require_fit(optimizer.muon, total_steps());
  } catch (const Error& error) {
    e.add("optimizer.muon.momentum_cooldown", "{}", error.what());
  }
  validate_storage(*this, e);
  if (optimizer.qk_clip.threshold > 0 && (model.lora.rank > 0 || !optimizer.freeze.empty()))
    e.add(
        "optimizer.qk_clip",
        "scales the projections of queries and keys, which are frozen; use logit_softcap or a smaller rate");
  if (model.moe.sees_future_tokens() && !model.moe.allow_future_tokens)
    e.add("model.moe.selection",
          "expert_choice lets a token's experts depend on later tokens: losses are lower than a causal "
          "model's, "
          "and the model cannot generate; use top_k or sinkhorn, or accept it with "
          "model.moe.allow_future_tokens = true");
  if (model.moe.sees_future_tokens() && samples.prompts && !samples.prompts->empty())
    e.add("samples.prompts",
          "moe.selection is expert_choice, which cannot generate; use [], or selection = top_k");
}

Precision Recipe::model_precision() const {
  if (run.precision == PrecisionChoice::f32) return Precision::f32();
  Precision p = Precision::bf16();
  p.bf16_masters = optimizer.master != ValueStorage::f32;
  return p;
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

double Recipe::rope_theta_of(size_t phase) const {
  for (size_t i = std::min(phase + 1, phases.size()); i-- > 0;)
    if (phases[i].rope_theta != 0) return phases[i].rope_theta;
  return model.rope_theta;
}

int64_t Recipe::window_at(size_t phase, int64_t step) const {
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

constexpr RenamedKey kRenamedKeys[] = {
    {"stages", "phases"},
    {"optimizer.beta1", "optimizer.adamw.beta1"},
    {"optimizer.beta2", "optimizer.adamw.beta2"},
    {"optimizer.eps", "optimizer.adamw.eps"},
    {"optimizer.ademamix_beta3", "optimizer.ademamix.beta3"},
    {"optimizer.ademamix_alpha", "optimizer.ademamix.alpha"},
    {"optimizer.ademamix_warmup", "optimizer.ademamix.warmup"},
    {"optimizer.muon_momentum", "optimizer.muon.momentum"},
    {"optimizer.muon_momentum_start", "optimizer.muon.momentum_start"},
    {"optimizer.muon_momentum_warmup", "optimizer.muon.momentum_warmup"},
    {"optimizer.muon_momentum_end", "optimizer.muon.momentum_end"},
    {"optimizer.muon_momentum_cooldown", "optimizer.muon.momentum_cooldown"},
    {"optimizer.muon_nesterov", "optimizer.muon.nesterov"},
    {"optimizer.muon_form", "optimizer.muon.form"},
    {"optimizer.muon_scale", "optimizer.muon.scale"},
    {"optimizer.muon_lr_multiplier", "optimizer.muon.lr_multiplier"},
    {"parallel.dispatch_room", "parallel.dispatch_capacity"}};

/// The preset's values under those that the recipe names.
Recipe read_with_preset(ConfigNode tree, const std::vector<std::string>& overrides, bool note_old_names) {
  const std::vector<std::string> notes = move_renamed_keys(tree, kRenamedKeys);
  if (note_old_names && !notes.empty())
    log::warn("{}{}", notes[0],
              notes.size() == 1 ? "" : fmt::format(" (and {} more keys: docs/config.md)", notes.size() - 1));
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

std::span<const RenamedKey> renamed_recipe_keys() {
  return kRenamedKeys;
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  return recipe_from_tree(path.empty() ? ConfigNode{} : load_toml(path), overrides);
}

Recipe recipe_from_tree(ConfigNode tree, const std::vector<std::string>& overrides) {
  return read_with_preset(std::move(tree), overrides, true);
}

void add_later_keys(ConfigNode& recorded) {
  const ConfigNode* run = recorded.find("run");
  const ConfigNode* precision = run != nullptr ? run->find("precision") : nullptr;
  ConfigNode* model = recorded.find("model");
  ConfigNode* moe = model != nullptr ? model->find("moe") : nullptr;
  if (moe == nullptr || precision == nullptr || precision->string != "bf16") return;
  const ConfigNode* experts = moe->find("experts");
  if (experts == nullptr || experts->integer == 0 || moe->find("router_precision") != nullptr) return;
  ConfigNode key;  // routers of bf16 runs rounded to bf16
  key.kind = ConfigNode::Kind::string;
  key.name = "router_precision", key.string = "bf16", key.where = recorded.where;
  moe->items.push_back(std::move(key));
}

Recipe recipe_from_toml(const std::string& text, const std::string& where) {
  ConfigNode tree = parse_toml(text, where);
  add_later_keys(tree);
  return read_with_preset(std::move(tree), {}, false);
}

}  // namespace ingot
