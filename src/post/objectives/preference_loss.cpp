// See preference_loss.h.
#include "post/objectives/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

/// -log sigmoid(x), and its slope -sigmoid(-x).
double softplus_of_minus(double x) {
  return x > 0 ? std::log1p(std::exp(-x)) : -x + std::log1p(std::exp(x));
}

double sigmoid_slope(double x) {
  return sigmoid(x) * sigmoid(-x);
}

/// o(x) = x - log(1 - e^x) of a mean log-probability x < 0, and its slope 1 / (1 - e^x). A model that is sure
/// of every token has x = 0, where both are infinite.
struct LogOdds {
  double value, slope;
  explicit LogOdds(double x) {
    x = std::min(x, -1e-12);
    const double rest = -std::expm1(x);
    value = x - std::log(rest);
    slope = 1 / rest;
  }
};

PreferenceValue kto(const PreferenceConfig& p, const ScoredSequence& c, const ScoredSequence& r, double z) {
  PreferenceValue v;
  if (c.tokens > 0) {
    const double x = p.beta * (c.ratio() - z);
    v.loss += p.desirable_weight * sigmoid(-x);
    v.d_chosen = -p.desirable_weight * p.beta * sigmoid_slope(x);
  }
  if (r.tokens > 0) {
    const double x = p.beta * (z - r.ratio());
    v.loss += p.undesirable_weight * sigmoid(-x);
    v.d_rejected = p.undesirable_weight * p.beta * sigmoid_slope(x);
  }
  return v;
}

PreferenceValue ipo(const PreferenceConfig& p, const ScoredSequence& c, const ScoredSequence& r) {
  const bool mean = p.length == PreferenceLength::mean;
  const double n_c = mean ? c.tokens : 1, n_r = mean ? r.tokens : 1;
  const double x = c.ratio() / n_c - r.ratio() / n_r - 1 / (2 * p.beta);
  return {x * x, 2 * x / n_c, -2 * x / n_r};
}

PreferenceValue orpo(const PreferenceConfig& p, const ScoredSequence& c, const ScoredSequence& r) {
  const LogOdds o_c(c.mean()), o_r(r.mean());
  const double x = o_c.value - o_r.value, push = p.lambda * sigmoid(-x);
  return {-c.mean() + p.lambda * softplus_of_minus(x), (-1 - push * o_c.slope) / c.tokens,
          push * o_r.slope / r.tokens};
}

PreferenceValue of_pair(const PreferenceConfig& p, const ScoredSequence& c, const ScoredSequence& r) {
  const double beta = p.beta, x_c = beta * c.ratio(), x_r = beta * r.ratio(), x = x_c - x_r;
  switch (p.loss) {
    case PreferenceLoss::dpo:
      return {softplus_of_minus(x), -beta * sigmoid(-x), beta * sigmoid(-x)};
    case PreferenceLoss::ipo:
      return ipo(p, c, r);
    case PreferenceLoss::apo_zero:
      return {sigmoid(-x_c) + sigmoid(x_r), -beta * sigmoid_slope(x_c), beta * sigmoid_slope(x_r)};
    case PreferenceLoss::apo_down:
      return {sigmoid(x_c) + sigmoid(-x), beta * sigmoid_slope(x_c) - beta * sigmoid_slope(x),
              beta * sigmoid_slope(x)};
    case PreferenceLoss::orpo:
      return orpo(p, c, r);
    case PreferenceLoss::simpo: {
      const double m = beta * (c.mean() - r.mean()) - p.gamma;
      return {softplus_of_minus(m), -beta * sigmoid(-m) / c.tokens, beta * sigmoid(-m) / r.tokens};
    }
    case PreferenceLoss::kto:
      break;
  }
  return {};
}

}  // namespace

bool needs_reference(PreferenceLoss loss) {
  return loss != PreferenceLoss::orpo && loss != PreferenceLoss::simpo;
}

PreferenceValue preference_loss(const PreferenceConfig& p, const ScoredSequence& c, const ScoredSequence& r,
                                double kl) {
  INGOT_CHECK(p.loss == PreferenceLoss::kto || (c.tokens > 0 && r.tokens > 0), "a pair lacks a sequence");
  PreferenceValue v = p.loss == PreferenceLoss::kto ? kto(p, c, r, kl) : of_pair(p, c, r);
  const bool reference = needs_reference(p.loss);
  v.reward_chosen = p.beta * (reference ? c.ratio() : c.mean());
  v.reward_rejected = p.beta * (reference ? r.ratio() : r.mean());
  return v;
}

}  // namespace ingot
