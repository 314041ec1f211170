// route: from router logits to the chosen experts and their weights p, and the balance losses.
//
//   softmax_first   s = softmax(logits over all E + S classes);  p = s on the chosen set  (Qwen3-MoE, ZAYA1)
//   softmax_last    chosen = top-k of the logits;  p = softmax(logits of the chosen)      (Mixtral; not k =
//                   1)
//   sigmoid         s = sigmoid(logits);  p = s on the chosen set                         (DeepSeek-V3)
//   selection       top-k of (score + bias) over the E experts, ties to the lowest index, NaN last. The bias
//                   decides the selection only, never p. The last S classes (ZAYA1's skip class) take part in
//                   the softmax. With a bias for all E + S classes they can be chosen too: such a choice is
//                   none (id -1, weight 0), so the token skips the experts. ZAYA1's bias of -1 for it loses
//                   unless the biases of all experts are about as low. Otherwise they cannot be chosen.
//   groups          with groups_kept < groups the experts form equal groups of neighbours. A group counts by
//                   the sum of its k / groups_kept largest (score + bias); only the groups_kept best take
//                   part. ([DeepSeek-V3] §2.1.2, node-limited routing)
//   normalize       p is divided by its sum over the chosen set (norm_topk_prob); sigmoid adds 1e-20 to that
//                   sum
//   scale           p is multiplied by a constant at the end
//   aux_loss        E / (k T^2) sum_i n_i sum_t P_ti,  P = s / sum s;  n_i counts choices and is a constant
//                   for the gradient ([Megatron-MoE] §7.1; Fedus et al. 2022 §2.2). `load` replaces n_i by
//                   the choices of other tokens (of all ranks, or of the step before), `earlier` adds those
//                   of micro-batches with as many tokens: E / T sum_i (n_i + earlier_i) / choices sum_t P_ti,
//                   where `choices` is their total number (load_choices()), so that it does not matter how
//                   those tokens are divided.
//   z_loss          mean over tokens of logsumexp(logits)^2   (Zoph et al. 2022)
//
// Shapes: logits [T, E + S] (f32, or f64), bias [E] or [E + S] (f32, optional), load_E (f32, optional),
//         forced_ids_TK (i32, optional: replaces the selection; -1: no choice, weight 0), earlier_E1 [E + 1]
//         (f32, optional: choices of each expert, and how many micro-batches made them)
//         -> probs_TK (logits' type), ids_TK (i32, ascending within a token but for -1), counts_E (f32:
//            tokens per expert), aux_loss_1, z_loss_1, entropy_1 (mean entropy of P; no gradient).
// The losses receive their coefficients as cotangents. Without tokens they are zero.
#pragma once
#include "base/enum.h"
#include "tape/tape.h"

namespace ingot {

enum class RouteScore : uint8_t { softmax_first, softmax_last, sigmoid };
constexpr auto enum_names(RouteScore) {
  return names_in_order<RouteScore>("softmax_first", "softmax_last", "sigmoid");
}

struct RouteAttr {
  RouteScore score = RouteScore::softmax_first;
  bool normalize = false;
  int32_t experts = 0;       ///< E
  int32_t skip_classes = 0;  ///< S
  int32_t k = 1;
  double scale = 1.0;
  int32_t groups = 1;       ///< divides E
  int32_t groups_kept = 1;  ///< if below groups: divides k; groups_kept * (E / groups) >= k
  /// The counts of this micro-batch, in `load` or its own, are of so many tokens; 0: `load` has fractions, or
  /// the counts are those of the rows.
  int64_t load_tokens = 0;

  /// What the counts of a micro-batch are divided by to make fractions of choices; those with `earlier` by
  /// that times the number of micro-batches.
  double load_choices() const {
    return load_tokens > 0 ? static_cast<double>(k) * static_cast<double>(load_tokens) : 1;
  }
};

struct RouteResult {
  Value probs_TK, ids_TK, counts_E, aux_loss, z_loss, entropy;
};

RouteResult route(Tape& tape, const RouteAttr& attr, const Value& logits_TE, const Value& bias = {},
                  const Value& load_E = {}, const Value& forced_ids_TK = {}, const Value& earlier_E1 = {});

const Op& route_op();
Kernel route_reference();

}  // namespace ingot
