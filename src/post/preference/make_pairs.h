// Preference pairs made by a model and a verifier: several answers to each problem of an environment, the
// best against the worst; or the answers of a strong model against those of a weak one.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "eval/task_model.h"

namespace ingot {

struct PairOptions {
  std::string environment;
  int64_t easiest = 0, hardest = 0;  ///< difficulties, drawn in turn
  int64_t first = 0, count = 100;    ///< problems [first, first + count): a partition of all
  uint64_t seed = 0;                 ///< of the problems; training's, not those of evaluation
  TaskSampling sampling;
  ThinkingMode thinking = ThinkingMode::automatic;
};

struct PairReport {
  int64_t problems = 0, pairs = 0;
  int64_t all_equal = 0;   ///< problems whose answers all had the same reward, or the same text
  int64_t cut = 0;         ///< answers that were not finished, left out
  int64_t not_judged = 0;  ///< answers that the verifier failed on, left out
  double reward = 0;       ///< mean over the answers that were judged
};

/// Calls `write` with one line for every pair, a JSON row as chat::read_preference() takes it: "prompt",
/// "chosen", "rejected", and for people "id" and "rewards". With `weak`, chosen is the best answer of `model`
/// and rejected the worst of `weak`, where its reward is not larger. A function of models, options and seeds.
/// Error: an environment or difficulty that does not exist, a model without a chat template, a prompt that
/// the context cannot hold.
PairReport make_pairs(TaskModel& model, TaskModel* weak, const PairOptions& options,
                      const std::function<void(const std::string& row)>& write);

}  // namespace ingot
