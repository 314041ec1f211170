// grouped_linear: the products of all local experts. Rows are ordered by expert; expert e has the rows
// offsets[e] .. offsets[e + 1] - 1:  y[r] = x[r] W_e^T.
//
// Shapes: x_RK, weight_ENK (any float types), offsets (i32 [E + 1], ascending, offsets[0] = 0, offsets[E] <=
//         R) -> y_RN (attr.out). Rows from offsets[E] on are neither written nor read.
// An expert without rows is legal; its weight gradient is zero. Order of sums and deferral as in ops/linear.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct GroupedLinearAttr {
  DType out = DType::f32;
  double expected = 0;  ///< see PermuteAttr
};

Value grouped_linear(Tape& tape, DType out, const Value& x_RK, const Value& weight_ENK, const Value& offsets,
                     double expected = 0);

const Op& grouped_linear_op();
Kernel grouped_linear_reference();

}  // namespace ingot
