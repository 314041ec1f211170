// Which environment and difficulty the next prompts have: environments that were drawn least come first,
// difficulties follow what the policy solves ([RLVE]; [ZAYA1-8B] §IV-B2). A pure state machine: draws are
// functions of the state and of random numbers given by the caller. Not thread-safe.
//
// Per environment there is a difficulty d, the frontier. A prompt has a difficulty drawn evenly from
// [d - window, d], no lower than the environment's lowest. A group at d itself moves it: + 1 if its pass
// rate is above `raise`, - 1 if nothing was solved. Groups at another difficulty, also those that were drawn
// before d moved, move nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/philox.h"
#include "post/rl/length_reward.h"

namespace ingot {

struct CurriculumRule {
  bool moves = true;   ///< false: every difficulty of an environment's range, evenly
  int64_t window = 4;  ///< difficulties below the frontier that are drawn too; 0: the frontier alone
  double raise = 0.7;
};

struct CurriculumEnvironment {
  std::string name;
  int64_t lowest = 0, highest = 0;  ///< difficulties, both included
  int64_t start = 0;                ///< first frontier
  double weight = 1;                ///< its share of the draws, relative to the others'
  bool operator==(const CurriculumEnvironment&) const = default;
};

class Curriculum {
 public:
  struct Draw {
    size_t environment = 0;
    int64_t difficulty = 0;
  };

  /// Error where there is no environment, two have one name, or a start lies outside its range.
  Curriculum(std::vector<CurriculumEnvironment> environments, CurriculumRule rule);

  /// The next prompt: environment e with probability proportional to weight_e / (1 + groups drawn of e /
  /// weight_e). Uses the numbers 4 index .. 4 index + 3 of `random`.
  Draw draw(const Random& random, uint64_t index);
  /// A group's mean task reward. Returns the change of its environment's frontier.
  int64_t report(const Draw& of, double pass_rate);

  const std::vector<CurriculumEnvironment>& environments() const { return environments_; }
  int64_t difficulty(size_t environment) const { return states_[environment].difficulty; }
  void set_difficulty(size_t environment, int64_t difficulty);
  int64_t drawn(size_t environment) const { return states_[environment].drawn; }
  const BestPassRate& best(size_t environment) const { return states_[environment].best; }

  std::string json() const;
  /// Error where the text is damaged or of other environments; `where` names it.
  void restore(const std::string& json, const std::string& where);

 private:
  struct State {
    int64_t difficulty = 0, drawn = 0;
    BestPassRate best;
  };
  std::vector<CurriculumEnvironment> environments_;
  CurriculumRule rule_;
  std::vector<State> states_;
};

}  // namespace ingot
