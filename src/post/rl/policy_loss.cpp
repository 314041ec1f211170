// See policy_loss.h.
#include "post/rl/policy_loss.h"

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

PolicyTerm weighted_likelihood(double logprob, double ratio, double cap, double advantage) {
  const double factor = -advantage * std::min(ratio, cap);
  return {factor * logprob, factor, false};
}

PolicyTerm clipped(const PolicyLoss& rule, double ratio, double advantage) {
  const double inside = std::clamp(ratio, 1 - rule.clip_low, 1 + rule.clip_high);
  PolicyTerm term{-ratio * advantage, -ratio * advantage, false};
  if (inside * advantage < ratio * advantage) term = {-inside * advantage, 0, true};
  if (rule.dual_clip > 0 && advantage < 0 && term.loss > -rule.dual_clip * advantage)
    term = {-rule.dual_clip * advantage, 0, true};
  return term;
}

}  // namespace

PolicyTerm reference_term(double logprob, double reference) {
  const double change = std::clamp(reference - logprob, -20.0, 20.0), ratio = std::exp(change);
  return {ratio - change - 1, 1 - ratio, false};
}

PolicyTerm policy_term(const PolicyLoss& rule, double logprob, double recorded, double advantage) {
  const double ratio = std::exp(std::clamp(logprob - recorded, -20.0, 20.0));
  switch (rule.kind) {
    case PolicyLossKind::reinforce:
      return weighted_likelihood(logprob, ratio, rule.ratio_cap, advantage);
    case PolicyLossKind::clip:
      return clipped(rule, ratio, advantage);
    case PolicyLossKind::cispo:
      return weighted_likelihood(logprob, ratio, rule.cispo_cap, advantage);
    case PolicyLossKind::dppo: {
      const double step = std::exp(logprob) - std::exp(recorded);
      if (advantage > 0 ? step > rule.delta : step < -rule.delta) return {0, 0, advantage != 0};
      return weighted_likelihood(logprob, ratio, rule.ratio_cap, advantage);
    }
  }
  return {};
}

}  // namespace ingot
