// route: from router logits to the chosen experts and their weights, and the balance losses.
//
//   softmax_first   s = softmax(logits over all E + S classes);  p = s on the chosen set   (qwen3-moe, ZAYA1)
//   softmax_last    chosen = top-k of the logits;  p = softmax(logits of the chosen)       (mixtral; k = 1 is refused)
//   sigmoid         s = sigmoid(logits);  p = s on the chosen set                          (deepseek-v3)
//   selection       top-k of (score + bias) over the E real experts, ties to the lowest index, NaN last; the bias moves
//                   the selection only, never p. The last S classes (ZAYA1's pinned skip class) take part in the softmax
//                   but cannot be chosen (spec zaya1 §1.7: their bias is -1, so they never win).
//   groups          with groups_kept < groups the experts are cut into equal groups of neighbours; a group counts by the
//                   sum of its k / groups_kept largest (score + bias), and only the groups_kept best take part
//                   (spec megatron-moe RT-6)
//   normalize       p is divided by its sum over the chosen set (norm_topk_prob); sigmoid adds 1e-20 to that sum
//   scale           p is multiplied by a constant at last
//   aux_loss        E/(k T^2) * sum_i n_i sum_t P_ti,  P = s / sum s  (spec megatron-moe LB-1; n_i counts choices, constant
//                   for the gradient). With `load` given, the fractions of other tokens' choices (the whole batch's
//                   of the step before, or of all rows of a micro-batch that ranks share out):
//                   E/T * sum_i load_i sum_t P_ti, which does not depend on how those tokens are split.
//   z_loss          mean over tokens of logsumexp(logits)^2
//
// Shapes: logits_TE (f32, E+S columns; f64 in double), bias_E (f32, optional), load_E (f32, optional), forced_ids_TK
// (i32, optional: replaces the selection; replay, or a selection made elsewhere; -1: no choice, weight 0) -> probs_TK
// (logits' type), ids_TK (i32, ascending within a token), counts_E (f32: tokens per expert), aux_loss_1, z_loss_1,
// entropy_1 (mean entropy of P; not differentiable).
// The two losses receive their coefficients as cotangents. Empty T gives zero losses.
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
  int32_t groups_kept = 1;  ///< divides k; groups_kept * (E / groups) >= k
  int64_t load_tokens = 0;  ///< `load` counts the choices of so many tokens; 0: it has fractions
};

struct RouteResult {
  Value probs_TK, ids_TK, counts_E, aux_loss, z_loss, entropy;
};

RouteResult route(Tape& tape, const RouteAttr& attr, const Value& logits_TE, const Value& bias_E = {},
                  const Value& load_E = {}, const Value& forced_ids_TK = {});

const Op& route_op();

}  // namespace ingot
