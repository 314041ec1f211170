// linear: y = x W^T + b.
//
// Shapes: x_TK, weight_NK ([out, in], any float type), bias_N (optional; f32, or f64) -> y_TN (attr.out).
// Every output is one fp32 FMA chain over ascending k, then the bias, then one rounding (docs/numerics.md
// rule 2). Backward: d_x = d_y W; d_W = d_y^T x, one chain over tokens, which a schedule may defer; d_b = sum
// of d_y over tokens.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct LinearAttr {
  DType out = DType::f32;
};

Value linear(Tape& tape, DType out, const Value& x_TK, const Value& weight_NK, const Value& bias_N = {});

const Op& linear_op();
Kernel linear_reference();

}  // namespace ingot
