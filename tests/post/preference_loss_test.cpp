// Losses on preferences and their gradients against the formulas as the papers print them, differentiated
// with dual numbers, and against TRL's values (tools/oracle/make_preference.py).
#include "post/objectives/preference_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "post/objectives/preference_objective.h"
#include "support/support.h"

namespace ingot::test::preference_loss_test {
namespace {

/// A number with its derivatives by the two summed log-probabilities.
struct Dual {
  double v = 0, d[2] = {0, 0};
  Dual(double value = 0) : v(value) {}
  Dual(double value, double d0, double d1) : v(value), d{d0, d1} {}
};
Dual chain(const Dual& a, double value, double slope) {
  return {value, slope * a.d[0], slope * a.d[1]};
}
Dual operator+(const Dual& a, const Dual& b) {
  return {a.v + b.v, a.d[0] + b.d[0], a.d[1] + b.d[1]};
}
Dual operator*(const Dual& a, const Dual& b) {
  return {a.v * b.v, a.d[0] * b.v + a.v * b.d[0], a.d[1] * b.v + a.v * b.d[1]};
}
Dual operator-(const Dual& a, const Dual& b) {
  return a + Dual(-1) * b;
}
Dual log(const Dual& a) {
  return chain(a, std::log(a.v), 1 / a.v);
}
Dual exp(const Dual& a) {
  return chain(a, std::exp(a.v), std::exp(a.v));
}
Dual sigmoid(const Dual& a) {
  const Dual e = exp(Dual(-1) * a) + Dual(1);
  return chain(e, 1 / e.v, -1 / (e.v * e.v));
}

struct Case {
  ScoredSequence chosen, rejected;
  double kl = 0;
};

/// The papers' formulas.
Dual formula(const PreferenceConfig& p, const Case& k) {
  const Dual lc(k.chosen.logprob, 1, 0), lr(k.rejected.logprob, 0, 1);
  const Dual c = lc - Dual(k.chosen.reference), r = lr - Dual(k.rejected.reference);
  const Dual mc = lc * Dual(1 / k.chosen.tokens), mr = lr * Dual(1 / k.rejected.tokens);
  const Dual beta(p.beta), one(1);
  switch (p.loss) {
    case PreferenceLoss::dpo:
      return Dual(-1) * log(sigmoid(beta * (c - r)));
    case PreferenceLoss::ipo: {
      const Dual n_c(p.length == PreferenceLength::mean ? 1 / k.chosen.tokens : 1),
          n_r(p.length == PreferenceLength::mean ? 1 / k.rejected.tokens : 1);
      const Dual h = c * n_c - r * n_r - Dual(1 / (2 * p.beta));
      return h * h;
    }
    case PreferenceLoss::apo_zero:
      return (one - sigmoid(beta * c)) + sigmoid(beta * r);
    case PreferenceLoss::apo_down:
      return sigmoid(beta * c) + (one - sigmoid(beta * (c - r)));
    case PreferenceLoss::kto:
      return Dual(p.desirable_weight) * (one - sigmoid(beta * (c - Dual(k.kl)))) +
             Dual(p.undesirable_weight) * (one - sigmoid(beta * (Dual(k.kl) - r)));
    case PreferenceLoss::orpo: {
      const auto odds = [&](const Dual& m) { return m - log(one - exp(m)); };
      return Dual(-1) * mc - Dual(p.lambda) * log(sigmoid(odds(mc) - odds(mr)));
    }
    case PreferenceLoss::simpo:
      return Dual(-1) * log(sigmoid(beta * (mc - mr) - Dual(p.gamma)));
  }
  return {};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const Random random(7, RandomPurpose::test);
  const auto draw = [&](uint64_t i, double least, double most) {
    return least + (most - least) * (static_cast<double>(random.below(i, 1u << 30)) / (1u << 30));
  };
  for (uint64_t i = 0; i < 200; ++i) {
    Case k;
    k.chosen.tokens = 1 + std::floor(draw(8 * i, 0, 40));
    k.rejected.tokens = 1 + std::floor(draw(8 * i + 1, 0, 40));
    k.chosen.logprob = -k.chosen.tokens * draw(8 * i + 2, 0.02, 3);
    k.rejected.logprob = -k.rejected.tokens * draw(8 * i + 3, 0.02, 3);
    k.chosen.reference = k.chosen.logprob + draw(8 * i + 4, -8, 8);
    k.rejected.reference = k.rejected.logprob + draw(8 * i + 5, -8, 8);
    k.kl = draw(8 * i + 6, 0, 3);
    all.push_back(k);
  }
  return all;
}

std::vector<PreferenceConfig> configs() {
  std::vector<PreferenceConfig> all;
  for (const auto& entry : enum_names(PreferenceLoss{}))
    for (const double beta : {0.1, 0.7, 2.0}) {
      PreferenceConfig p;
      p.loss = entry.value;
      p.beta = beta;
      p.gamma = 0.3, p.lambda = 0.4;
      p.desirable_weight = 1.2, p.undesirable_weight = 0.9;
      all.push_back(p);
      p.length = PreferenceLength::sum;
      if (p.loss == PreferenceLoss::ipo) all.push_back(p);
    }
  return all;
}

}  // namespace

TEST(PreferenceLoss, IsThePapersFormulaWithItsGradient) {
  for (const PreferenceConfig& p : configs())
    for (const Case& k : cases()) {
      const PreferenceValue found = preference_loss(p, k.chosen, k.rejected, k.kl);
      const Dual expected = formula(p, k);
      const std::string where = fmt::format("{} beta {}", name_of(p.loss), p.beta);
      const auto near = [&](double a, double b) {
        EXPECT_NEAR(a, b, 1e-12 * std::max(1.0, std::abs(b))) << where;
      };
      near(found.loss, expected.v);
      near(found.d_chosen, expected.d[0]);
      near(found.d_rejected, expected.d[1]);
    }
}

TEST(PreferenceLoss, IsFiniteAtTheEnds) {
  for (PreferenceConfig p : configs())
    for (const double c : {-2000.0, -1e-14, 0.0})
      for (const double r : {-2000.0, -1e-14, 0.0}) {
        const PreferenceValue v = preference_loss(p, {c, -3, 4}, {r, -5, 6}, 0.5);
        for (const double x : {v.loss, v.d_chosen, v.d_rejected, v.reward_chosen, v.reward_rejected})
          EXPECT_TRUE(std::isfinite(x)) << name_of(p.loss) << " " << c << " " << r;
      }
}

TEST(PreferenceLoss, TakesOneSideOfKto) {
  PreferenceConfig p;
  p.loss = PreferenceLoss::kto;
  const ScoredSequence some{-4, -5, 3}, none;
  const PreferenceValue chosen = preference_loss(p, some, none, 0.2),
                        rejected = preference_loss(p, none, some, 0.2),
                        both = preference_loss(p, some, some, 0.2);
  EXPECT_LT(chosen.d_chosen, 0);
  EXPECT_EQ(chosen.d_rejected, 0);
  EXPECT_GT(rejected.d_rejected, 0);
  EXPECT_DOUBLE_EQ(both.loss, chosen.loss + rejected.loss);
}

/// TRL's own statements on the same numbers.
TEST(PreferenceLoss, IsTrls) {
  const auto all = nlohmann::json::parse(read_text(fixture("preference/trl.json")));
  ASSERT_GE(all.at("cases").size(), 40u);
  for (const auto& j : all.at("cases")) {
    PreferenceConfig p;
    const std::string name = j.at("loss");
    for (const auto& entry : enum_names(PreferenceLoss{}))
      if (entry.name == name) p.loss = entry.value;
    p.beta = j.at("beta");
    p.gamma = j.value("gamma", 0.0);
    p.lambda = j.value("lambda", 0.0);
    p.desirable_weight = j.value("desirable_weight", 1.0);
    p.undesirable_weight = j.value("undesirable_weight", 1.0);
    const auto side = [&](const char* key) {
      return ScoredSequence{j.at(key).at("logprob"), j.at(key).at("reference"), j.at(key).at("tokens")};
    };
    const PreferenceValue v = preference_loss(p, side("chosen"), side("rejected"), j.value("kl", 0.0));
    const auto near = [&](double a, const char* key) {
      const double b = j.at(key);
      // TRL computes in double but for ORPO's log-odds.
      const double bound = p.loss == PreferenceLoss::orpo ? 2e-7 : 1e-12;
      EXPECT_NEAR(a, b, bound * std::max(1.0, std::abs(b))) << name << " " << key;
    };
    near(v.loss, "value");
    near(v.d_chosen, "d_chosen");
    near(v.d_rejected, "d_rejected");
  }
}

TEST(PreferenceObjective, SumsTokensOfEachSequence) {
  PreferenceConfig p;
  const auto objective = preference_objective(p);
  // Pair 3 of a batch: prompt, two tokens chosen, three rejected; then padding.
  const std::vector<int32_t> targets = {-1, 5, 6, -1, 7, 8, 9, -1}, sequence = {6, 6, 6, 7, 7, 7, 7, -1};
  const std::vector<float> logprob = {0, -1, -2, 0, -0.5F, -0.25F, -4, 0},
                           reference = {0, -1.5F, -2, 0, -0.75F, -1, -3, 0}, lse(8, 0.0F);
  ObjectiveInputs in{logprob, lse, targets};
  in.columns.sequence = sequence;
  in.columns.reference = reference;
  const ObjectiveResult r = objective->evaluate(in);
  const PreferenceValue v = preference_loss(p, {-3, -3.5, 2}, {-4.75, -4.75, 3});
  EXPECT_DOUBLE_EQ(r.loss, v.loss);
  for (size_t t = 0; t < targets.size(); ++t) {
    const double expected = targets[t] < 0 ? 0 : sequence[t] == 6 ? v.d_chosen : v.d_rejected;
    EXPECT_EQ(r.d_logprob[t], static_cast<float>(expected)) << t;
  }
  const auto sum = [&](PreferenceSum s) { return r.sums[static_cast<size_t>(s)]; };
  EXPECT_EQ(sum(PreferenceSum::pairs), 1);
  EXPECT_EQ(sum(PreferenceSum::tokens_chosen), 2);
  EXPECT_EQ(sum(PreferenceSum::tokens_rejected), 3);
  EXPECT_DOUBLE_EQ(sum(PreferenceSum::margin), 0.1 * 0.5);
  EXPECT_EQ(sum(PreferenceSum::correct), 1);
  EXPECT_EQ(r.sums.size(), objective->sums.size());
}

}  // namespace ingot::test::preference_loss_test
