// capacity: limits how many tokens of a call each expert takes and drops the other choices ([Megatron-MoE]
// §7.1).
//
//   C = ceil(T k / E factor)
//   by weight     each expert keeps its C largest weights, ties to the lowest token, NaN last
//   by position   each expert keeps its first C tokens
//
// A dropped choice has weight 0 and id -1. It gets no row; its token keeps the residual path and its other
// weights, which are not renormalised. What is dropped depends on the whole call, so the op is for training
// only.
//
// Shapes: probs_TK (f32, or f64), ids_TK (i32; -1, no choice, stays so and gets weight 0)
//         -> probs_TK, ids_TK, dropped_1 (f32: how many choices were dropped).
#pragma once
#include "base/enum.h"
#include "tape/tape.h"

namespace ingot {

/// What an expert drops beyond its capacity: the smallest weights, or the last positions.
enum class DropRule : uint8_t { weight, position };
constexpr auto enum_names(DropRule) {
  return names_in_order<DropRule>("weight", "position");
}

struct CapacityAttr {
  int32_t experts = 0;  ///< E
  double factor = 1.0;
  DropRule drop = DropRule::weight;
};

struct CapacityResult {
  Value probs_TK, ids_TK, dropped;
};

/// C, of `tokens` tokens with k choices each.
int64_t expert_capacity(int64_t tokens, int64_t k, int64_t experts, double factor);

CapacityResult capacity(Tape& tape, const CapacityAttr& attr, const Value& probs_TK, const Value& ids_TK);

const Op& capacity_op();
Kernel capacity_reference();

}  // namespace ingot
