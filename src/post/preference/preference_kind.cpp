// See preference_kind.h.
#include "post/preference/preference_kind.h"

#include "post/objectives/preference_objective.h"
#include "post/preference/preference_source.h"

namespace ingot {
namespace {

void validate_preference(const Recipe& r, size_t i, ConfigErrors& e) {
  const PhaseConfig& p = r.phases[i];
  const std::string at = fmt::format("phases.{}.", i);
  if (!p.preference)
    e.add(at + "preference",
          "kind = \"preference\" needs its section [phases.preference], which says the loss");
  if (p.objective != "cross_entropy")
    e.add(at + "objective", "the loss of a phase of kind preference is preference.loss; leave objective out");
  if (p.z_coefficient != 0)
    e.add(at + "z_coefficient", "losses on pairs have no z-loss, found {}", p.z_coefficient);
  if (!p.batches.empty()) e.add(at + "batches", "a phase of kind preference has one batch size");
  if (r.model.mtp.depths > 0)
    e.add(at + "kind", "model.mtp.depths is {}: tokens further ahead have no preference; use 0",
          r.model.mtp.depths);
  if (r.memory.head == HeadMode::gradient)
    e.add("memory.head",
          "the gradient of a pair is known after its forward pass only; use store or recompute");
  if (r.parallel.context > 1)
    e.add("parallel.context", "context ranks share sequences, and phase '{}' compares whole ones", p.name);
  if (!r.data.document_mask)
    e.add("data.document_mask", "phase '{}' packs answers, which must not see each other", p.name);
  require_sources(r, i, e);
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

}  // namespace ingot
