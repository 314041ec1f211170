// Policy losses against their closed forms, their derivatives against differences, and the gradient that each
// estimator expects against the exact one, by enumeration of a policy of three tokens.
#include "post/rl/policy_loss.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

#include "post/rl/advantage.h"
#include "post/rl/aggregation.h"

namespace ingot::policy_loss_test {
namespace {

constexpr double kClosed = 1e-12;

TEST(PolicyLoss, OnPolicyEveryKindHasTheSameDerivative) {
  for (const PolicyLossKind kind :
       {PolicyLossKind::reinforce, PolicyLossKind::clip, PolicyLossKind::cispo, PolicyLossKind::dppo})
    for (const double a : {2.0, -0.5, 0.0}) {
      const PolicyTerm t = policy_term({.kind = kind}, -1.25, -1.25, a);
      EXPECT_EQ(t.d_logprob, -a) << name_of(kind);
      EXPECT_FALSE(t.masked);
    }
}

TEST(PolicyLoss, ClippedSurrogate) {
  const PolicyLoss rule{.kind = PolicyLossKind::clip, .clip_low = 0.2, .clip_high = 0.28};
  const auto term = [&](double ratio, double a) { return policy_term(rule, std::log(ratio) - 1, -1, a); };
  const auto expect = [](const PolicyTerm& t, double loss, double d, bool masked) {
    EXPECT_NEAR(t.loss, loss, kClosed);
    EXPECT_NEAR(t.d_logprob, d, kClosed);
    EXPECT_EQ(t.masked, masked);
  };
  expect(term(1.27, 2), -2.54, -2.54, false);
  expect(term(1.5, 2), -2.56, 0, true);  // above the high clip
  expect(term(0.5, 2), -1, -1, false);   // a good token that became rarer is raised again
  expect(term(0.5, -2), 1.6, 0, true);   // below the low clip
  expect(term(1.5, -2), 3, 3, false);    // a bad token that became likelier is lowered
  expect(term(0.81, -2), 1.62, 1.62, false);
  PolicyLoss dual = rule;
  dual.dual_clip = 3;
  const PolicyTerm far = policy_term(dual, std::log(4.0) - 1, -1, -2);
  expect(far, 6, 0, true);  // without it 8
  expect(policy_term(dual, std::log(2.5) - 1, -1, -2), 5, 5, false);
  expect(policy_term(dual, std::log(4.0) - 1, -1, 2), -2.56, 0, true);  // positive: the usual clip
}

TEST(PolicyLoss, CappedRatios) {
  const double l = -0.5, m = -1.5, ratio = std::exp(1.0);
  const auto expect = [&](PolicyLoss rule, double factor) {
    const PolicyTerm t = policy_term(rule, l, m, 0.7);
    EXPECT_NEAR(t.d_logprob, -0.7 * factor, kClosed);
    EXPECT_NEAR(t.loss, -0.7 * factor * l, kClosed);
    EXPECT_FALSE(t.masked);
  };
  expect({.kind = PolicyLossKind::reinforce}, ratio);
  expect({.kind = PolicyLossKind::reinforce, .ratio_cap = 2}, 2);
  expect({.kind = PolicyLossKind::cispo, .cispo_cap = 1.28}, 1.28);
  expect({.kind = PolicyLossKind::cispo, .cispo_cap = 5}, ratio);
  // Log-ratios beyond 20 are clamped before the exponential.
  const PolicyTerm far = policy_term({.kind = PolicyLossKind::cispo, .cispo_cap = 1e300}, -1, -500, 1);
  EXPECT_NEAR(far.d_logprob / -std::exp(20.0), 1, kClosed);
}

// Binary total variation: a token is blocked only where its step leads further from the recorded policy.
TEST(PolicyLoss, FourMaskCasesOfDppo) {
  const PolicyLoss rule{.kind = PolicyLossKind::dppo, .delta = 0.1};
  const auto term = [&](double now, double then, double a) {
    return policy_term(rule, std::log(now), std::log(then), a);
  };
  EXPECT_TRUE(term(0.55, 0.4, 1).masked);    // up by 0.15, and to go up: blocked
  EXPECT_FALSE(term(0.25, 0.4, 1).masked);   // down, and to go up: back, kept
  EXPECT_TRUE(term(0.25, 0.4, -1).masked);   // down by 0.15, and to go down: blocked
  EXPECT_FALSE(term(0.55, 0.4, -1).masked);  // up, and to go down: back, kept
  EXPECT_FALSE(term(0.49, 0.4, 1).masked);
  EXPECT_FALSE(term(0.31, 0.4, -1).masked);
  EXPECT_EQ(term(0.55, 0.4, 1).d_logprob, 0);
  EXPECT_NEAR(term(0.49, 0.4, 1).d_logprob, -0.49 / 0.4, kClosed);
  // A rare token may multiply its probability without being blocked: that is the point of the mask.
  EXPECT_FALSE(term(0.01, 0.001, 1).masked);
}

TEST(PolicyLoss, DerivativeOfTheClippedLossEqualsItsDifference) {
  const PolicyLoss rule{.kind = PolicyLossKind::clip, .clip_low = 0.2, .clip_high = 0.28, .dual_clip = 3};
  for (const double l : {-3.0, -1.4, -1.0, -0.9, -0.4})
    for (const double a : {1.5, -0.75}) {
      const double h = 1e-6;
      const double slope =
          (policy_term(rule, l + h, -1, a).loss - policy_term(rule, l - h, -1, a).loss) / (2 * h);
      EXPECT_NEAR(policy_term(rule, l, -1, a).d_logprob, slope, 1e-8) << l << " " << a;
    }
}

// A policy over three replies of one token, with softmax probabilities of `logit`.
TEST(PolicyLoss, DivergenceFromAReference) {
  for (const double f : {-3.0, -1.0, -0.2})
    for (const double l : {-2.5, -1.0, -0.1}) {
      const PolicyTerm t = reference_term(l, f);
      EXPECT_NEAR(t.loss, std::exp(f) / std::exp(l) - (f - l) - 1, kClosed);
      EXPECT_NEAR(t.d_logprob, 1 - std::exp(f) / std::exp(l), kClosed);
      EXPECT_GE(t.loss, 0);
      const double h = 1e-5;
      const double slope = (reference_term(l + h, f).loss - reference_term(l - h, f).loss) / (2 * h);
      EXPECT_NEAR(t.d_logprob, slope, 1e-7 * std::exp(f - l));  // h^2 and cancellation
    }
  EXPECT_EQ(reference_term(-1.25, -1.25).loss, 0);
  EXPECT_EQ(reference_term(-1.25, -1.25).d_logprob, 0);
  EXPECT_TRUE(std::isfinite(reference_term(-1000, 0).loss));
}

using Three = std::array<double, 3>;
Three softmax(const Three& logit) {
  Three p{};
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) sum += p[i] = std::exp(logit[i]);
  for (double& x : p) x /= sum;
  return p;
}

/// Calls `visit` with every group of `size` replies and its probability under p.
void for_each_group(const Three& p, size_t size,
                    const std::function<void(const std::vector<size_t>&, double)>& visit) {
  std::vector<size_t> group(size, 0);
  for (;;) {
    double probability = 1;
    for (const size_t reply : group) probability *= p[reply];
    visit(group, probability);
    size_t at = 0;
    while (at < size && ++group[at] == 3) group[at++] = 0;
    if (at == size) return;
  }
}

/// The gradient by the logits that the estimator expects: the sum over all groups of probability times
/// -dloss/dlogit, with the loss aggregated over the group (one token each).
Three expected_gradient(AdvantageKind kind, const PolicyLoss& rule, const Three& logit, const Three& sampled,
                        const Three& reward, size_t size) {
  const Three now = softmax(logit), then = softmax(sampled);
  Three sum{};
  for_each_group(then, size, [&](const std::vector<size_t>& group, double probability) {
    std::vector<double> rewards;
    for (const size_t reply : group) rewards.push_back(reward[reply]);
    const std::vector<double> a = advantages(kind, rewards);
    const std::vector<int64_t> tokens(size, 1);
    const AggregationWeights w = aggregate(Aggregation::constant, tokens, 1);
    for (size_t i = 0; i < size; ++i) {
      const PolicyTerm t = policy_term(rule, std::log(now[group[i]]), std::log(then[group[i]]), a[i]);
      for (size_t j = 0; j < 3; ++j)
        sum[j] -= probability * t.d_logprob * w.weight[i] / w.divisor * ((j == group[i] ? 1 : 0) - now[j]);
    }
  });
  return sum;
}

/// Exact: d/dlogit of sum_i p_i value_i.
Three exact_gradient(const Three& p, const Three& value) {
  double mean = 0;
  for (size_t i = 0; i < 3; ++i) mean += p[i] * value[i];
  Three g{};
  for (size_t j = 0; j < 3; ++j) g[j] = p[j] * (value[j] - mean);
  return g;
}

void expect_near(const Three& found, const Three& expected, double scale = 1) {
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(found[j], scale * expected[j], 1e-10) << "logit " << j;
}

constexpr Three kLogit = {0.3, -0.6, 0.1}, kReward = {1, 0, 0.25}, kBinary = {1, 0, 0};
const PolicyLoss kDppo{.kind = PolicyLossKind::dppo};

TEST(PolicyGradient, EstimatorsExpectTheGradientOfTheMeanReward) {
  const Three exact = exact_gradient(softmax(kLogit), kReward);
  for (const size_t n : {2, 4}) {
    const double size = static_cast<double>(n);
    expect_near(expected_gradient(AdvantageKind::reinforce, kDppo, kLogit, kLogit, kReward, n), exact);
    expect_near(expected_gradient(AdvantageKind::rloo, kDppo, kLogit, kLogit, kReward, n), exact);
    // Its own reward is in the baseline: the gradient is (G - 1) / G of the exact one.
    expect_near(expected_gradient(AdvantageKind::dr_grpo, kDppo, kLogit, kLogit, kReward, n), exact,
                (size - 1) / size);
  }
}

// MaxRL maximises the harmonic series of pass@k up to G - 1 of them: its weight per success is
// E[(1 - rbar) / rbar ...]; enumerated here from the definition of the group's objective: sum over k of
// (1 - (1 - p)^k) / k, k = 1 .. G - 1, whose derivative by p is sum of (1 - p)^(k - 1).
TEST(PolicyGradient, MaxRlExpectsTheGradientOfTheTruncatedLogLikelihood) {
  const Three p = softmax(kLogit);
  for (const size_t n : {2, 4, 6}) {
    double slope = 0;
    for (size_t k = 1; k < n; ++k) slope += std::pow(1 - p[0], static_cast<double>(k - 1));
    expect_near(expected_gradient(AdvantageKind::maxrl, kDppo, kLogit, kLogit, kBinary, n),
                exact_gradient(p, kBinary), slope);
  }
}

TEST(PolicyGradient, GroupsOfEqualRewardAddNothing) {
  const Three equal = {1, 1, 1};
  for (const AdvantageKind kind :
       {AdvantageKind::rloo, AdvantageKind::grpo, AdvantageKind::dr_grpo, AdvantageKind::maxrl})
    expect_near(expected_gradient(kind, kDppo, kLogit, kLogit, equal, 3), {0, 0, 0});
}

// Importance weights make samples of another policy expect the gradient at the present one.
TEST(PolicyGradient, RatiosCorrectForAnOlderPolicy) {
  const Three older = {0.1, -0.5, 0.2};
  const Three exact = exact_gradient(softmax(kLogit), kReward);
  for (const PolicyLossKind kind : {PolicyLossKind::reinforce, PolicyLossKind::cispo, PolicyLossKind::dppo})
    expect_near(expected_gradient(AdvantageKind::reinforce, {.kind = kind}, kLogit, older, kReward, 3),
                exact);
  expect_near(expected_gradient(AdvantageKind::reinforce,
                                {.kind = PolicyLossKind::clip, .clip_low = 0.9, .clip_high = 9}, kLogit,
                                older, kReward, 3),
              exact);
}

TEST(PolicyGradient, GrpoWithDeviationIsTheScaledEstimatorOfEachGroup) {
  // Binary rewards, two replies a group: a mixed group has deviation sqrt(1/2).
  const Three plain = expected_gradient(AdvantageKind::dr_grpo, kDppo, kLogit, kLogit, kBinary, 2);
  expect_near(expected_gradient(AdvantageKind::grpo, kDppo, kLogit, kLogit, kBinary, 2), plain,
              1 / (std::sqrt(0.5) + 1e-6));
}

TEST(Aggregation, HandTables) {
  const std::vector<int64_t> tokens = {4, 0, 2};
  const auto expect = [&](Aggregation kind, std::vector<double> weight, double divisor) {
    const AggregationWeights w = aggregate(kind, tokens, 10);
    EXPECT_EQ(w.weight, weight) << name_of(kind);
    EXPECT_DOUBLE_EQ(w.divisor, divisor) << name_of(kind);
  };
  expect(Aggregation::constant, {1, 0, 1}, 30);
  expect(Aggregation::token, {1, 0, 1}, 6);
  expect(Aggregation::sequence, {0.25, 0, 0.5}, 3);
  EXPECT_EQ(aggregate(Aggregation::token, std::vector<int64_t>{0, 0}, 10).divisor, 1);
}

}  // namespace
}  // namespace ingot::policy_loss_test
