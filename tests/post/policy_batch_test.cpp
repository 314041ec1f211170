// From judged replies to a batch: what is in the loss, with which weights; no result depends on how sequences
// are packed or divided.
#include "post/rl/policy_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "post/rl/policy_objective.h"
#include "post/rl/text_replay.h"

namespace ingot::policy_batch_test {
namespace {

/// Two groups of two replies: of the second, one is left out, and one has a forced token.
std::vector<RolloutGroup> small_groups() {
  std::vector<RolloutGroup> groups(2);
  const auto add = [](RolloutGroup& g, std::vector<int32_t> ids, double reward) -> Rollout& {
    Rollout& r = g.rollouts.emplace_back();
    for (size_t i = 0; i < ids.size(); ++i) r.recorded.push_back(-0.5F * static_cast<float>(ids[i] % 3 + 1));
    r.ids = std::move(ids), r.forced.assign(r.ids.size(), false), r.reward = reward, r.weights = 7;
    return r;
  };
  groups[0].prompt = {1, 2, 3};
  add(groups[0], {10, 11}, 1);
  add(groups[0], {12, 13, 14}, 0);
  groups[1].prompt = {4, 5};
  add(groups[1], {15, 16, 17}, 1).forced[1] = true;
  add(groups[1], {18}, 0).left_out = true;
  add(groups[1], {19, 20}, 0);
  for (RolloutGroup& g : groups) set_advantages(g, AdvantageKind::dr_grpo);
  return groups;
}

TEST(PolicyBatch, DrawnTokensAreInTheLoss) {
  const data::Batch b = policy_batch(small_groups(), {.sequence = 16, .constant = 10});
  EXPECT_EQ(b.valid_targets, 2 + 3 + 2 + 2);
  EXPECT_DOUBLE_EQ(b.divisor, 4 * 10);  // four sequences count
  std::map<int32_t, size_t> at;
  for (size_t t = 0; t < b.targets.size(); ++t)
    if (b.targets[t] >= 0) at[b.targets[t]] = t;
  for (const int32_t id : {10, 11, 12, 13, 14, 15, 17, 19, 20}) ASSERT_TRUE(at.contains(id)) << id;
  EXPECT_FALSE(at.contains(16)) << "a forced token is in the loss";
  EXPECT_FALSE(at.contains(18)) << "a reply that was not judged is in the loss";
  EXPECT_EQ(b.tokens[at[10]], 3);  // predicted by the prompt's last token
  EXPECT_EQ(b.tokens[at[11]], 10);
  EXPECT_EQ(b.tokens[at[17]], 16);  // the forced token is seen
  EXPECT_EQ(b.positions[at[10]], 2);
  EXPECT_EQ(b.columns.advantage[at[10]], 0.5F);
  EXPECT_EQ(b.columns.cotangent[at[10]], -0.5F);
  EXPECT_EQ(b.columns.advantage[at[12]], -0.5F);
  EXPECT_EQ(b.columns.recorded[at[11]], -0.5F * 3);
  EXPECT_EQ(b.columns.version[at[10]], 7);
  EXPECT_EQ(b.columns.sequence[at[15]], 2);
}

TEST(PolicyBatch, SequenceMeansWeighTokens) {
  const data::Batch b =
      policy_batch(small_groups(), {.sequence = 16, .aggregation = Aggregation::sequence, .constant = 10});
  EXPECT_DOUBLE_EQ(b.divisor, 4);
  for (size_t t = 0; t < b.targets.size(); ++t)
    if (b.targets[t] == 15 || b.targets[t] == 17) {
      EXPECT_EQ(b.columns.weight[t], 0.5F);  // of two drawn tokens, not of three
    }
}

/// The loss and the cotangent of each target, by the objective over pieces of `piece` positions.
std::pair<double, std::map<int32_t, float>> evaluated(const data::Batch& b, size_t piece) {
  const auto objective = policy_objective({.kind = PolicyLossKind::clip}, false);
  double loss = 0;
  std::map<int32_t, float> d;
  for (size_t begin = 0; begin < b.targets.size(); begin += piece) {
    const size_t n = std::min(piece, b.targets.size() - begin);
    std::vector<float> logprob, lse(n, 0);
    for (size_t i = 0; i < n; ++i)
      logprob.push_back(-0.3F * static_cast<float>(b.targets[begin + i] % 5 + 1));
    ObjectiveInputs in{.logprob = logprob, .lse = lse, .targets = std::span(b.targets).subspan(begin, n)};
    in.columns.weight = std::span(b.columns.weight).subspan(begin, n);
    in.columns.advantage = std::span(b.columns.advantage).subspan(begin, n);
    in.columns.recorded = std::span(b.columns.recorded).subspan(begin, n);
    const ObjectiveResult r = objective->evaluate(in);
    loss += r.loss / b.loss_divisor();
    for (size_t i = 0; i < n; ++i)
      if (b.targets[begin + i] >= 0) d[b.targets[begin + i]] = r.d_logprob[i];
  }
  return {loss, d};
}

TEST(PolicyBatch, NothingDependsOnPackingAndMicroBatches) {
  const std::vector<RolloutGroup> groups = small_groups();
  const auto whole = evaluated(policy_batch(groups, {.sequence = 64, .constant = 10}), 64);
  for (const int64_t sequence : {6, 8, 12})
    for (const int64_t multiple : {1, 2, 4}) {
      const data::Batch b =
          policy_batch(groups, {.sequence = sequence, .multiple = multiple, .constant = 10});
      EXPECT_EQ(b.rows % multiple, 0);
      const auto split = evaluated(b, static_cast<size_t>(sequence));
      EXPECT_NEAR(split.first, whole.first, 1e-12);
      EXPECT_EQ(split.second, whole.second);
    }
}

TEST(PolicyBatch, OnPolicyTheCotangentIsTheObjectives) {
  const data::Batch b =
      policy_batch(small_groups(), {.sequence = 16, .aggregation = Aggregation::sequence, .constant = 10});
  const auto objective = policy_objective({}, true);
  EXPECT_TRUE(objective->known_cotangent);
  std::vector<float> lse(b.targets.size(), 0);
  ObjectiveInputs in{.logprob = b.columns.recorded, .lse = lse, .targets = b.targets};
  in.columns.weight = b.columns.weight, in.columns.advantage = b.columns.advantage;
  in.columns.recorded = b.columns.recorded;
  const ObjectiveResult r = objective->evaluate(in);
  EXPECT_EQ(r.d_logprob, b.columns.cotangent);  // in bits
  const PolicyShift shift = PolicyShift::of(r.sums);
  EXPECT_EQ(shift.kl, 0);
  EXPECT_EQ(shift.ratio, 1);
  EXPECT_EQ(shift.masked, 0);
}

TEST(PolicyBatch, KeptIdsStandAtTheirTargets) {
  std::vector<RolloutGroup> groups = small_groups();
  int32_t width = 0;
  for (RolloutGroup& g : groups)
    for (Rollout& r : g.rollouts)
      for (size_t t = 0; t < r.ids.size(); ++t) {
        const int32_t more = r.forced[t] ? -1 : width++ % 3;  // the id itself and `more` behind it
        for (int32_t i = 0; i <= more; ++i) r.kept.push_back(r.ids[t] + i);
        r.kept_counts.push_back(more + 1);
      }
  for (const int64_t sequence : {8, 20, 64}) {
    data::Batch b = policy_batch(groups, {.sequence = sequence, .constant = 10});
    replay_kept(groups, b);
    ASSERT_EQ(b.allowed.size(), 2 * b.targets.size());
    std::map<int32_t, std::vector<int32_t>> found;
    for (size_t t = 0; t < b.targets.size(); ++t) {
      const std::vector<int32_t> ids(b.allowed_ids.begin() + b.allowed[2 * t],
                                     b.allowed_ids.begin() + b.allowed[2 * t + 1]);
      if (b.targets[t] >= 0)
        found[b.targets[t]] = ids;
      else
        EXPECT_TRUE(ids.empty()) << t;
    }
    EXPECT_EQ(found.size(), 9u);
    for (const RolloutGroup& g : groups)
      for (const Rollout& r : g.rollouts) {
        auto next = r.kept.begin();
        for (size_t t = 0; t < r.ids.size(); ++t) {
          const std::vector<int32_t> ids(next, next + r.kept_counts[t]);
          next += r.kept_counts[t];
          if (!r.left_out && !r.forced[t]) {
            EXPECT_EQ(found.at(r.ids[t]), ids) << r.ids[t];
          }
        }
      }
  }
  data::Batch plain = policy_batch(small_groups(), {.sequence = 16, .constant = 10});
  replay_kept(small_groups(), plain);
  EXPECT_TRUE(plain.allowed.empty() && plain.allowed_ids.empty());
}

TEST(PolicyBatch, CotangentsWithAReferenceAreTheObjectives) {
  data::Batch b =
      policy_batch(small_groups(), {.sequence = 16, .aggregation = Aggregation::sequence, .constant = 10});
  std::vector<float> reference(b.targets.size(), 0);
  for (size_t t = 0; t < reference.size(); ++t) reference[t] = -0.2F * static_cast<float>(t % 7 + 1);
  const std::vector<float> before = b.columns.cotangent;
  add_reference(reference, 0.3, b);
  EXPECT_NE(b.columns.cotangent, before);
  const auto objective = policy_objective({.kl = 0.3}, true);
  std::vector<float> lse(b.targets.size(), 0);
  ObjectiveInputs in{.logprob = b.columns.recorded, .lse = lse, .targets = b.targets};
  in.columns.weight = b.columns.weight, in.columns.advantage = b.columns.advantage;
  in.columns.recorded = b.columns.recorded, in.columns.reference = b.columns.reference;
  const ObjectiveResult r = objective->evaluate(in);
  EXPECT_EQ(r.d_logprob, b.columns.cotangent);  // in bits
  double mean = 0;
  for (size_t t = 0; t < b.targets.size(); ++t)
    if (b.targets[t] >= 0) mean += reference_term(b.columns.recorded[t], reference[t]).loss / 9;
  EXPECT_NEAR(PolicyShift::of(r.sums).reference, mean, 1e-12);
}

TEST(PolicyBatch, Fill) {
  const data::Batch b = policy_batch(small_groups(), {.sequence = 20, .constant = 10});
  EXPECT_DOUBLE_EQ(fill_of(b), (5.0 + 6 + 5 + 4) / 20);  // one row, full
}

TEST(PolicyBatch, RefusesWhatDoesNotFit) {
  EXPECT_THROW(policy_batch(small_groups(), {.sequence = 5, .constant = 10}), Error);
  std::vector<RolloutGroup> groups = small_groups();
  for (RolloutGroup& g : groups)
    for (Rollout& r : g.rollouts) r.forced.assign(r.ids.size(), true);
  EXPECT_THROW(policy_batch(groups, {.sequence = 16, .constant = 10}), Error);
}

TEST(PolicyShift, OfAMovedPolicy) {
  const auto objective = policy_objective({.kind = PolicyLossKind::clip}, false);
  const std::vector<float> logprob = {-1, -2, -0.5F}, recorded = {-1.5F, -1, -0.5F}, lse(3, 0),
                           weight = {1, 1, 1}, advantage = {1, -1, 1};
  const std::vector<int32_t> targets = {5, 6, 7};
  ObjectiveInputs in{.logprob = logprob, .lse = lse, .targets = targets};
  in.columns.weight = weight, in.columns.advantage = advantage, in.columns.recorded = recorded;
  const PolicyShift shift = PolicyShift::of(objective->evaluate(in).sums);
  const double a = std::exp(0.5), b = std::exp(-1.0);
  EXPECT_NEAR(shift.ratio, (a + b + 1) / 3, 1e-12);
  EXPECT_NEAR(shift.kl, ((a - 1 - 0.5) + (b - 1 + 1)) / 3, 1e-12);
  EXPECT_NEAR(shift.masked, 2.0 / 3, 1e-12);
  EXPECT_LT(shift.correlation, 1);
  EXPECT_GT(shift.correlation, -1);
}

}  // namespace
/// A row of text of `sequence` positions, all but its last in the loss.
data::Batch text_rows(int64_t rows, int64_t sequence) {
  data::Batch b;
  b.rows = rows, b.sequence_length = sequence;
  for (int64_t i = 0; i < rows * sequence; ++i) {
    const bool last = i % sequence == sequence - 1;
    b.tokens.push_back(static_cast<int32_t>(30 + i));
    b.targets.push_back(last ? data::kMasked : static_cast<int32_t>(31 + i));
    b.positions.push_back(static_cast<int32_t>(i % sequence));
    b.valid_targets += last ? 0 : 1;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = static_cast<int32_t>(r * sequence), end = static_cast<int32_t>((r + 1) * sequence);
    b.spans.push_back({begin, end});
    b.pieces.push_back({begin, end, r});
  }
  return b;
}

TEST(TextReplay, ItsMeanIsAddedToTheLoss) {
  const data::Batch policy = policy_batch(small_groups(), {.sequence = 16, .constant = 10});
  data::Batch both = policy;
  append_text(text_rows(2, 16), 0.5, both);
  EXPECT_EQ(both.rows, policy.rows + 2);
  EXPECT_EQ(both.valid_targets, policy.valid_targets + 30);
  EXPECT_EQ(both.divisor, policy.divisor);
  EXPECT_EQ(both.spans.back().end, both.rows * 16);
  for (const auto size :
       {both.targets.size(), both.positions.size(), both.columns.weight.size(), both.columns.recorded.size(),
        both.columns.cotangent.size(), both.columns.sequence.size(), both.columns.version.size()})
    EXPECT_EQ(size, static_cast<size_t>(both.rows * 16));
  const auto [alone, ignored] = evaluated(policy, 16);
  for (const size_t piece : {size_t{16}, size_t{7}, both.targets.size()}) {
    const auto [loss, d] = evaluated(both, piece);
    double text = 0;  // the mean of -log p, as evaluated() makes it up
    for (int32_t id = 0; id < 32; ++id)
      if (id % 16 != 15) text += 0.3 * ((31 + id) % 5 + 1) / 30;
    EXPECT_NEAR(loss - alone, 0.5 * text, 1e-6);
    for (size_t t = policy.targets.size(); t < both.targets.size(); ++t)
      if (both.targets[t] >= 0) {
        EXPECT_EQ(d.at(both.targets[t]), both.columns.cotangent[t]);
      }
  }
}

TEST(TextReplay, TextWithoutTargetsChangesNothing) {
  const data::Batch policy = policy_batch(small_groups(), {.sequence = 16, .constant = 10});
  data::Batch both = policy, text = text_rows(1, 16);
  text.targets.assign(16, data::kMasked), text.valid_targets = 0;
  append_text(text, 0.5, both);
  EXPECT_EQ(both, policy);
}

}  // namespace ingot::policy_batch_test
