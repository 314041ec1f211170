// See preference_metrics.h.
#include "post/preference/preference_metrics.h"

namespace ingot {

void add_preference_metrics(const StepOutcome& outcome, bool has_reference, MetricRow& row) {
  const std::vector<double>& sums = outcome.stats.sums;
  const auto sum = [&](PreferenceSum what) { return sums[static_cast<size_t>(what)]; };
  const auto mean = [&](const char* name, PreferenceSum what, PreferenceSum over) {
    if (sum(over) > 0) row.set(std::string("preference/") + name, sum(what) / sum(over));
  };
  using enum PreferenceSum;
  mean("accuracy", correct, pairs);
  mean("margin", margin, pairs);
  mean("reward_chosen", reward_chosen, chosen);
  mean("reward_rejected", reward_rejected, rejected);
  mean("tokens_chosen", tokens_chosen, chosen);
  mean("tokens_rejected", tokens_rejected, rejected);
  mean("logprob_chosen", logprob_chosen, tokens_chosen);
  mean("logprob_rejected", logprob_rejected, tokens_rejected);
  if (!has_reference) return;
  mean("drift_chosen", ratio_chosen, tokens_chosen);
  mean("drift_rejected", ratio_rejected, tokens_rejected);
}

}  // namespace ingot
