// Objectives: pure functions from the head's statistics per token (and columns of the data) to a loss and one
// cotangent per statistic. They never see logits: ops/head turns the cotangents into gradients. Losses are
// sums, not means: the optimizer divides once, by the valid tokens of the step. T: tokens of a micro-batch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ingot {

/// What an objective returns for T tokens. The cotangents of statistics that it does not use are empty.
struct ObjectiveResult {
  double loss = 0;  ///< what is minimised, a sum over tokens (or over sequences, or pairs)
  std::vector<float> d_logprob, d_lse, d_kl, d_entropy;  ///< [T]
  std::vector<double> sums;                              ///< as Objective::sums names them
};

/// Next-token cross entropy plus z-loss: sum over valid tokens of weight (-logprob + z lse^2). valid: target
/// >= 0. `weight` may be empty: 1.
ObjectiveResult cross_entropy(std::span<const float> logprob, std::span<const float> lse,
                              std::span<const int32_t> targets, double z_coefficient,
                              std::span<const float> weight = {});

/// The columns of a batch (data::TokenColumns) for T tokens; those that it does not have are empty.
struct ColumnSpans {
  std::span<const float> weight, advantage, recorded, reference, cotangent;
  std::span<const int32_t> sequence, version;
};

/// What the objective of a phase sees of T tokens: all tokens of a micro-batch, so whole sequences, where
/// ranks do not share them.
struct ObjectiveInputs {
  std::span<const float> logprob, lse;  ///< of the target; logsumexp of the logits
  std::span<const int32_t> targets;     ///< below 0: does not count
  double z_coefficient = 0;
  std::span<const float> entropy = {};  ///< of the next token's distribution; empty unless asked for
  ColumnSpans columns = {};
  double baseline = 0;  ///< Batch::baseline
};
using ObjectiveFunction = std::function<ObjectiveResult(const ObjectiveInputs& inputs)>;

/// What the steps of a phase minimise.
struct Objective {
  ObjectiveFunction evaluate;
  /// d_logprob is known before the forward pass: the column `cotangent`, or -weight where the batch has none.
  /// The head may then form its gradients in forward (mode gradient): no logits are kept, no second pass. The
  /// bits are those of the other modes, which take the same cotangents; evaluate()'s d_logprob is not used.
  bool known_cotangent = false;
  /// 1 / temperature: statistics of the next token's head are of logits times this (ops/head/head.h).
  float logit_scale = 1;
  bool entropy = false;                ///< evaluate() wants entropies; not with known_cotangent
  std::vector<std::string> sums = {};  ///< names of ObjectiveResult::sums: added up over a step, for metrics
};

/// Adds an objective that recipes may name (docs/extend-objective.md). Call before any recipe is read; not
/// thread-safe. Error for a name that is taken. "cross_entropy" exists from the start.
void register_objective(const std::string& name, ObjectiveFunction evaluate);
/// nullptr where there is none of that name.
std::shared_ptr<const Objective> find_objective(const std::string& name);
/// "cross_entropy, ...".
std::string objective_names();

/// Direct preference optimisation (Rafailov et al. 2023, eq. 7): per pair -log sigmoid(beta (m_chosen -
/// m_rejected)) with m = sum over the sequence of (logprob - reference logprob). sequence[t]: 2 i for the
/// chosen answer of pair i, 2 i + 1 for its rejected one, -1 for tokens that do not count (prompts, padding).
ObjectiveResult dpo(std::span<const float> logprob, std::span<const float> reference_logprob,
                    std::span<const int32_t> sequence, double beta);

/// Distillation: sum over valid tokens of weight * KL(teacher || student) + (1 - weight) * cross entropy.
ObjectiveResult distillation(std::span<const float> logprob, std::span<const float> kl,
                             std::span<const int32_t> targets, double weight);

}  // namespace ingot
