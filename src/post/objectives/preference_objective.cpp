// See preference_objective.h.
#include "post/objectives/preference_objective.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "post/objectives/preference_loss.h"

namespace ingot {
namespace {

struct Pair {
  ScoredSequence sides[2];  // chosen, rejected
  PreferenceValue value;
};

/// The pairs of these tokens, from the number `first` on.
struct Pairs {
  int32_t first = 0;
  std::vector<Pair> all;
  Pair& of(int32_t sequence) { return all[static_cast<size_t>(sequence / 2 - first)]; }
};

bool counts(const ObjectiveInputs& in, size_t t) {
  return in.targets[t] >= 0 && in.columns.sequence[t] >= 0;
}

Pairs score_pairs(const ObjectiveInputs& in) {
  Pairs pairs;
  int32_t last = -1;
  for (size_t t = 0; t < in.targets.size(); ++t) {
    if (!counts(in, t)) continue;
    const int32_t pair = in.columns.sequence[t] / 2;
    pairs.first = last < 0 ? pair : std::min(pairs.first, pair);
    last = std::max(last, pair);
  }
  if (last >= 0) pairs.all.resize(static_cast<size_t>(last - pairs.first) + 1);
  const bool reference = !in.columns.reference.empty();
  for (size_t t = 0; t < in.targets.size(); ++t) {
    if (!counts(in, t)) continue;
    const int32_t sequence = in.columns.sequence[t];
    ScoredSequence& s = pairs.of(sequence).sides[sequence % 2];
    s.logprob += in.logprob[t];
    if (reference) s.reference += in.columns.reference[t];
    s.tokens += 1;
  }
  return pairs;
}

void add_sums(const Pair& pair, std::vector<double>& sums) {
  const auto add = [&](PreferenceSum what, double value) { sums[static_cast<size_t>(what)] += value; };
  const auto& [c, r] = pair.sides;
  const PreferenceValue& v = pair.value;
  add(PreferenceSum::chosen, c.tokens > 0);
  add(PreferenceSum::rejected, r.tokens > 0);
  if (c.tokens > 0) add(PreferenceSum::reward_chosen, v.reward_chosen);
  if (r.tokens > 0) add(PreferenceSum::reward_rejected, v.reward_rejected);
  add(PreferenceSum::tokens_chosen, c.tokens);
  add(PreferenceSum::tokens_rejected, r.tokens);
  add(PreferenceSum::logprob_chosen, c.logprob);
  add(PreferenceSum::logprob_rejected, r.logprob);
  add(PreferenceSum::ratio_chosen, c.ratio());
  add(PreferenceSum::ratio_rejected, r.ratio());
  if (c.tokens == 0 || r.tokens == 0) return;
  const double margin = v.reward_chosen - v.reward_rejected;
  add(PreferenceSum::pairs, 1);
  add(PreferenceSum::margin, margin);
  add(PreferenceSum::correct, margin > 0 ? 1 : margin == 0 ? 0.5 : 0);
}

ObjectiveResult evaluate_pairs(const PreferenceConfig& config, const ObjectiveInputs& in) {
  INGOT_CHECK(in.columns.sequence.size() == in.targets.size(), "pairs need the column 'sequence'");
  INGOT_CHECK(!needs_reference(config.loss) || !in.columns.reference.empty(),
              "{} needs the column 'reference'", name_of(config.loss));
  Pairs pairs = score_pairs(in);
  ObjectiveResult r;
  r.sums.assign(static_cast<size_t>(PreferenceSum::count), 0);
  r.d_logprob.assign(in.targets.size(), 0);
  for (Pair& p : pairs.all) {
    if (p.sides[0].tokens == 0 && p.sides[1].tokens == 0) continue;  // a number that no pair here has
    p.value = preference_loss(config, p.sides[0], p.sides[1], in.baseline);
    r.loss += p.value.loss;
    add_sums(p, r.sums);
  }
  for (size_t t = 0; t < in.targets.size(); ++t) {
    if (!counts(in, t)) continue;
    const int32_t sequence = in.columns.sequence[t];
    const PreferenceValue& v = pairs.of(sequence).value;
    r.d_logprob[t] = static_cast<float>(sequence % 2 == 0 ? v.d_chosen : v.d_rejected);
  }
  return r;
}

}  // namespace

std::shared_ptr<const Objective> preference_objective(const PreferenceConfig& config) {
  Objective o;
  o.evaluate = [config](const ObjectiveInputs& in) { return evaluate_pairs(config, in); };
  o.sums = {"pairs",           "chosen",         "rejected",         "reward_chosen",
            "reward_rejected", "margin",         "correct",          "tokens_chosen",
            "tokens_rejected", "logprob_chosen", "logprob_rejected", "ratio_chosen",
            "ratio_rejected"};
  return std::make_shared<const Objective>(std::move(o));
}

}  // namespace ingot
