// See phase_kind.h: the registry, and the kinds that read the sampler's batches as they are.
#include "train/phase_kind.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/round.h"

namespace ingot {
namespace {

void validate_text(const Recipe& r, size_t i, ConfigErrors& e) {
  const PhaseConfig& p = r.phases[i];
  const std::string at = fmt::format("phases.{}.", i);
  const auto objective = find_objective(p.objective);
  if (objective == nullptr)
    e.add(at + "objective", "'{}' is no objective; there are: {}", p.objective, objective_names());
  else if (!objective->known_cotangent && r.memory.head == HeadMode::gradient)
    e.add(at + "objective",
          "memory.head = \"gradient\" forms the gradient of cross_entropy only; use store or recompute");
}

PhaseKind text_kind() {
  return {.name = "text",
          .validate = validate_text,
          .objective = [](const PhaseConfig& p) { return find_objective(p.objective); },
          .sampling =
              [](const Recipe& r, const PhaseConfig&) {
                return KindSampling{r.data.sampling, r.data.rows(), r.data.drop_too_long};
              },
          .reads = [](const SourceConfig& s) { return !s.preferences; }};
}

void validate_chat(const Recipe& r, size_t i, ConfigErrors& e) {
  const PhaseConfig& p = r.phases[i];
  const std::string at = fmt::format("phases.{}.", i);
  if (!p.chat)
    e.add(at + "chat", "kind = \"chat\" needs its section [phases.chat]; an empty one takes the defaults");
  if (p.objective != "cross_entropy")
    e.add(at + "objective", "a phase of kind chat minimises cross_entropy, found {}", p.objective);
  if (!r.data.document_mask)
    e.add("data.document_mask", "phase '{}' packs conversations, which must not see each other", p.name);
  require_sources(r, i, e);
}

PhaseKind chat_kind() {
  return {.name = "chat",
          .validate = validate_chat,
          .objective = [](const PhaseConfig&) { return find_objective("cross_entropy"); },
          .sampling =
              [](const Recipe& r, const PhaseConfig& p) {
                return KindSampling{.mode = data::SampleMode::best_fit,
                                    .rows = r.data.rows(),
                                    .drop_too_long = p.chat->too_long == TooLong::drop,
                                    .trims = p.chat->too_long == TooLong::trim};
              },
          .reads = [](const SourceConfig& s) { return s.conversations || !s.prompt_field.empty(); },
          .replays_text = true};
}

std::map<std::string, PhaseKind>& kinds() {
  static std::map<std::string, PhaseKind> all = {{"chat", chat_kind()}, {"text", text_kind()}};
  return all;
}

}  // namespace

void require_sources(const Recipe& r, size_t phase, ConfigErrors& e) {
  const PhaseConfig& p = r.phases[phase];
  const PhaseKind& kind = kind_of(p);
  bool any = false;
  for (const SourceConfig& s : r.data.sources) {
    const auto named = std::find_if(p.weights.begin(), p.weights.end(),
                                    [&](const SourceWeight& w) { return w.source == s.name; });
    const bool weighs = p.weights.empty() ? s.weight > 0 : named != p.weights.end() && named->weight > 0;
    any |= weighs && kind.reads(s);
    const bool replayed = kind.replays_text && !s.preferences;
    if (weighs && !p.weights.empty() && !kind.reads(s) && !replayed)
      e.add(fmt::format("phases.{}.weights", phase), "source '{}' has no rows for a phase of kind {}", s.name,
            p.kind);
  }
  if (!any)
    e.add(fmt::format("phases.{}.kind", phase), "no source has rows for a phase of kind {}: {}", p.kind,
          p.kind == "chat" ? "one needs conversations = true, or a prompt_field"
                           : "one needs preferences = true");
}

void register_phase_kind(PhaseKind kind) {
  INGOT_CHECK(kind.validate && kind.objective && (kind.sampling || kind.source), "kind '{}'", kind.name);
  const std::string name = kind.name;
  if (!kinds().emplace(name, std::move(kind)).second)
    fail("a kind of phases named '{}' exists already", name);
}

const PhaseKind* find_phase_kind(const std::string& name) {
  const auto found = kinds().find(name);
  return found == kinds().end() ? nullptr : &found->second;
}

const PhaseKind& kind_of(const PhaseConfig& phase) {
  const PhaseKind* kind = find_phase_kind(phase.kind);
  INGOT_CHECK(kind != nullptr, "phase '{}' of kind '{}'", phase.name, phase.kind);
  return *kind;
}

std::string phase_kind_names() {
  std::string names;
  for (const auto& [name, kind] : kinds()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

int64_t micro_rows(const PhaseConfig& phase, int64_t level, int64_t data_ranks) {
  return kind_of(phase).rows ? 1 : phase.micro_at(level, data_ranks);
}

int64_t planned_rows(const PhaseConfig& phase, int64_t level, int64_t data_ranks) {
  const PhaseKind& kind = kind_of(phase);
  return kind.rows ? round_up(kind.rows(phase).rows, data_ranks) : phase.batch_at(level);
}

bool plans_longest(const PhaseConfig& phase) {
  const PhaseKind& kind = kind_of(phase);
  return kind.rows && kind.rows(phase).longest;
}

}  // namespace ingot
