// add: y = a + g b, elementwise over rows. The gate g_D is optional (absent: 1). The router's exponential
// depth averaging has one ([ZAYA1-AMD] §IV-A2); shared experts are added without.
//
// Shapes: a_TD, b_TD (any float types), gate_D (f32, or f64) -> y_TD (attr.out). d_gate sums over tokens in
// chunks of 64 rows combined in order.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct AddAttr {
  DType out = DType::f32;
  bool gated = false;  ///< whether the gate is given
};

Value add(Tape& tape, DType out, const Value& a_TD, const Value& b_TD, const Value& gate_D = {});

const Op& add_op();
Kernel add_reference();

}  // namespace ingot
