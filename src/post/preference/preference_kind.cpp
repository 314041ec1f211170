// See preference_kind.h.
#include "post/preference/preference_kind.h"

#include <algorithm>

#include "post/objectives/preference_objective.h"
#include "post/preference/own_pairs.h"
#include "post/preference/preference_source.h"
#include "post/rl/rl_kind.h"
#include "post/rl/rl_plan.h"

namespace ingot {
namespace {

/// A setting of another loss would change nothing, and whoever compares its values would not learn so.
void refuse_unused(const PreferenceConfig& c, const std::string& at, ConfigErrors& e) {
  const PreferenceConfig usual;
  const auto loss = c.loss;
  const auto only = [&](const char* field, bool set, bool used, const char* by) {
    if (set && !used)
      e.add(at + field, "the loss {} does not use it, only {}; leave it out", name_of(loss), by);
  };
  only("beta", c.beta != usual.beta, loss != PreferenceLoss::orpo,
       "other losses than orpo, which has lambda");
  only("gamma", c.gamma != usual.gamma, loss == PreferenceLoss::simpo, "simpo");
  only("lambda", c.lambda != usual.lambda, loss == PreferenceLoss::orpo, "orpo; others have beta");
  const bool kto = loss == PreferenceLoss::kto;
  only("desirable_weight", c.desirable_weight != usual.desirable_weight, kto, "kto");
  only("undesirable_weight", c.undesirable_weight != usual.undesirable_weight, kto, "kto");
  only("length", c.length != usual.length, loss == PreferenceLoss::ipo, "ipo");
}

/// What every loss on pairs asks of the recipe.
void validate_pairs(const Recipe& r, size_t i, ConfigErrors& e) {
  const PhaseConfig& p = r.phases[i];
  const std::string at = fmt::format("phases.{}.", i);
  if (!p.preference)
    e.add(at + "preference", "kind = \"{}\" needs its section [phases.preference], which says the loss",
          p.kind);
  else
    refuse_unused(*p.preference, at + "preference.", e);
  if (p.objective != "cross_entropy")
    e.add(at + "objective", "the loss of a phase of kind {} is preference.loss; leave objective out", p.kind);
  if (p.z_coefficient != 0)
    e.add(at + "z_coefficient", "losses on pairs have no z-loss, found {}", p.z_coefficient);
  if (!p.batches.empty()) e.add(at + "batches", "a phase of kind {} has one batch size", p.kind);
  if (r.model.mtp.depths > 0)
    e.add(at + "kind", "model.mtp.depths is {}: tokens further ahead have no preference; use 0",
          r.model.mtp.depths);
  if (r.memory.head == HeadMode::gradient)
    e.add("memory.head",
          "the gradient of a pair is known after its forward pass only; use store or recompute");
  if (r.parallel.context > 1)
    e.add("parallel.context", "context ranks share sequences, and phase '{}' compares whole ones", p.name);
}

void validate_preference(const Recipe& r, size_t i, ConfigErrors& e) {
  validate_pairs(r, i, e);
  if (!r.data.document_mask)
    e.add("data.document_mask", "phase '{}' packs answers, which must not see each other", r.phases[i].name);
  require_sources(r, i, e);
}

void validate_own_preference(const Recipe& r, size_t i, ConfigErrors& e) {
  validate_pairs(r, i, e);
  const PhaseConfig& p = r.phases[i];
  const std::string at = fmt::format("phases.{}.", i);
  if (!p.own_pairs)
    return e.add(at + "own_pairs",
                 "kind = \"own_preference\" needs its section [phases.own_pairs], which says what is asked");
  require_whole_models(r, i, e);
  if (p.preference && p.preference->loss == PreferenceLoss::kto)
    e.add(
        at + "preference.loss",
        "kto compares with the answers to other prompts, which own pairs have no reference for; use another "
        "loss, or make rows with `ingot pairs` for a phase of kind preference");
  if (p.sequence <= 2 * p.own_pairs->max_tokens)
    e.add(at + "sequence", "a row holds a prompt twice and two replies of up to {} tokens, found {}",
          p.own_pairs->max_tokens, p.sequence);
}

}  // namespace

PhaseKind preference_kind() {
  return {.name = "preference",
          .validate = validate_preference,
          .objective = [](const PhaseConfig& p) { return preference_objective(*p.preference); },
          .sampling =
              [](const Recipe& r, const PhaseConfig& p) {
                return KindSampling{.mode = data::SampleMode::best_fit,
                                    .rows = r.data.rows(),
                                    .drop_too_long = p.preference->drop_too_long,
                                    .group = 2};
              },
          .reads = [](const SourceConfig& s) { return s.preferences; },
          .source = [](const SourceContext& c) { return std::make_unique<PreferenceSource>(c); },
          .watches_loss = false};
}

PhaseKind own_preference_kind() {
  PhaseKind kind;
  kind.name = "own_preference";
  kind.validate = validate_own_preference;
  kind.objective = [](const PhaseConfig& p) { return preference_objective(*p.preference); };
  kind.source = [](const SourceContext& c) { return std::make_unique<OwnPairsSource>(c); };
  kind.rows = [](const PhaseConfig& p) {
    const OwnPairsConfig& c = *p.own_pairs;
    return rows_of_replies(c.pairs, 2, c.max_tokens, c.reply_tokens, p.sequence);
  };
  kind.watches_loss = false;
  return kind;
}

}  // namespace ingot
