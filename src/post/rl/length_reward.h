// Rewards for the length of a reply: ZAYA1's bonus for short correct answers of easy prompts ([ZAYA1-8B] §IV
// eq. 8-10), and DAPO's penalty near the limit ([DAPO] eq. 13). Pure functions in double; lengths in tokens.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

/// For rollout i of a group of G, correct where its task reward is at least 1; p: the group's mean reward,
/// shortest: the length of its shortest correct reply.
///   lambda_i = 1/2 where length_i <= shortest + tolerance, else
///              1/2 - clamp((length_i - shortest) / (longest - shortest), 0, 1)
///   bonus_i  = coefficient p lambda_i where rollout i is correct, p > 1/G and p > best - accuracy_tolerance;
///              else 0
struct LengthReward {
  double coefficient = 0;
  int64_t longest = 0;    ///< length of the smallest bonus; where the shortest is no shorter, all above it
  int64_t tolerance = 0;  ///< tokens above the shortest that cost nothing
  double accuracy_tolerance = 0.05;
};
/// One bonus per rollout. `best`: the largest pass rate that the rollouts' environment had so far.
std::vector<double> length_bonuses(const LengthReward& rule, std::span<const double> rewards,
                                   std::span<const int64_t> lengths, double best);

/// 0 up to limit - margin, falling linearly to -1 at `limit` and -1 beyond. margin 0: 0 everywhere.
double overlong_penalty(int64_t length, int64_t limit, int64_t margin);

/// The largest value that the running mean of a source's pass rates has had: p* of the length reward. The
/// mean weighs its past by 0.9 a group and begins with the first group.
class BestPassRate {
 public:
  /// Counts a group; returns the best so far, this group included.
  double add(double pass_rate);
  double best() const { return best_; }
  double mean() const { return mean_; }
  int64_t groups() const { return groups_; }
  void restore(double mean, double best, int64_t groups) { mean_ = mean, best_ = best, groups_ = groups; }

 private:
  double mean_ = 0, best_ = 0;
  int64_t groups_ = 0;
};

}  // namespace ingot
