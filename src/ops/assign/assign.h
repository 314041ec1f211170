// assign: chooses experts by looking at all tokens of a call at once, from router logits l. It has no
// gradient: ops/route makes the weights of the chosen experts, given these ids as forced ids.
//
//   sinkhorn        cost = exp(l), d1 = 1; repeat
//                     d0_t = 1 / (T (sum_e d1_e cost_te + 1e-8))
//                     d1_e = 1 / (E (sum_t d0_t cost_te + 1e-8))
//                   until the mean of |change of d1| is below 1e-4 (at most 1000 times); ids = the k largest
//                   of d0_t cost_te d1_e in each row, ties to the lowest index. Each row of cost is first
//                   divided by its largest value, which d0 undoes. ([Megatron-MoE] §7.1; Clark et al. 2022)
//   expert_choice   each expert takes the C = ceil(T k / E factor) tokens (at most T) with the largest score,
//                   softmax over the experts or sigmoid; ties to the lowest token, NaN last. (Zhou et al.
//                   2022)
//
// Both depend on the whole call, so they are for training only: a token's experts depend on later tokens.
//
// Shapes: logits_TE (f32, or f64) -> ids (i32): sinkhorn [T, k], ascending; expert_choice [T, E], where
// column e holds e or -1. Sinkhorn's row sums use 16 fixed lanes, its column sums chunks of 64 rows combined
// in order.
#pragma once
#include "base/enum.h"
#include "tape/tape.h"

namespace ingot {

/// top_k: each token takes its largest scores, as ops/route does without this op.
enum class AssignRule : uint8_t { top_k, sinkhorn, expert_choice };
constexpr auto enum_names(AssignRule) {
  return names_in_order<AssignRule>("top_k", "sinkhorn", "expert_choice");
}

struct AssignAttr {
  AssignRule rule = AssignRule::sinkhorn;
  bool sigmoid = false;  ///< expert_choice: scores are sigmoid(logits), else softmax
  int32_t k = 1;
  double factor = 1.0;  ///< expert_choice
};

Value assign(Tape& tape, const AssignAttr& attr, const Value& logits_TE);

const Op& assign_op();
Kernel assign_reference();

inline constexpr double kSinkhornTolerance = 1e-4, kSinkhornEpsilon = 1e-8;
inline constexpr int kSinkhornRounds = 1000;

}  // namespace ingot
