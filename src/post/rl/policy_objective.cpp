// See policy_objective.h.
#include "post/rl/policy_objective.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"

namespace ingot {
namespace {

/// Places in the sums.
enum Sum : size_t {
  kTokens,
  kMasked,
  kRatio,
  kKl,
  kP,
  kQ,
  kPp,
  kQq,
  kPq,
  kReference,
  kTexts,
  kTextLoss,
  kSums
};

}  // namespace

std::vector<std::string> policy_sums() {
  return {"tokens", "masked", "ratio", "kl", "p", "q", "pp", "qq", "pq", "reference", "texts", "text_loss"};
}

std::shared_ptr<const Objective> policy_objective(const PolicyLoss& rule, bool on_policy,
                                                  double temperature) {
  auto objective = std::make_shared<Objective>();
  objective->known_cotangent = on_policy;
  objective->logit_scale = static_cast<float>(1 / temperature);  // as infer/row_sampler.h scales
  objective->sums = policy_sums();
  objective->evaluate = [rule](const ObjectiveInputs& in) {
    const ColumnSpans& c = in.columns;
    INGOT_CHECK(c.weight.size() == in.targets.size() && c.advantage.size() == in.targets.size() &&
                c.recorded.size() == in.targets.size());
    INGOT_CHECK(rule.kl == 0 || c.reference.size() == in.targets.size(),
                "no log-probabilities of a reference");
    ObjectiveResult result;
    result.d_logprob.assign(in.targets.size(), 0);
    result.sums.assign(kSums, 0);
    for (size_t t = 0; t < in.targets.size(); ++t) {
      if (in.targets[t] < 0) continue;
      const double logprob = in.logprob[t], recorded = c.recorded[t], weight = c.weight[t];
      if (std::isnan(recorded)) {
        result.loss -= weight * logprob;
        result.d_logprob[t] = -c.weight[t];
        result.sums[kTexts] += 1, result.sums[kTextLoss] -= logprob;
        continue;
      }
      PolicyTerm term = policy_term(rule, logprob, recorded, c.advantage[t]);
      PolicyTerm away;
      if (rule.kl != 0) {
        away = reference_term(logprob, c.reference[t]);
        term.loss += rule.kl * away.loss, term.d_logprob += rule.kl * away.d_logprob;
      }
      result.loss += weight * term.loss;
      result.d_logprob[t] = static_cast<float>(weight * term.d_logprob);
      const double change = std::clamp(logprob - recorded, -20.0, 20.0), ratio = std::exp(change);
      const double p = std::exp(logprob), q = std::exp(recorded);
      const double terms[] = {
          1, term.masked ? 1.0 : 0.0, ratio, ratio - 1 - change, p, q, p * p, q * q, p * q, away.loss};
      for (size_t i = 0; i < std::size(terms); ++i) result.sums[i] += terms[i];
    }
    return result;
  };
  return objective;
}

PolicyShift PolicyShift::of(std::span<const double> sums) {
  INGOT_CHECK(sums.size() == kSums, "{} sums", sums.size());
  const double n = sums[kTokens];
  PolicyShift shift;
  if (sums[kTexts] > 0) shift.text = sums[kTextLoss] / sums[kTexts];
  if (n == 0) return shift;
  shift.kl = sums[kKl] / n;
  shift.ratio = sums[kRatio] / n;
  shift.reference = sums[kReference] / n;
  shift.masked = sums[kMasked] / n;
  const double covariance = sums[kPq] / n - sums[kP] / n * (sums[kQ] / n);
  const double p = sums[kPp] / n - sums[kP] / n * (sums[kP] / n),
               q = sums[kQq] / n - sums[kQ] / n * (sums[kQ] / n);
  if (p > 0 && q > 0) shift.correlation = std::min(1.0, covariance / std::sqrt(p * q));
  return shift;
}

}  // namespace ingot
