// mix: y = alpha a + beta b with learned scalars; columns of a before the first mixed one pass unchanged.
// scale: y = alpha a with a constant, for models that multiply what they add, look up or predict by one.
//
// modded-nanogpt's "lambdas" are such mixes: the stream with the embedding at a block's start, a skip
// connection with its weight, values with value embeddings (the last columns of packed q | k | v).
// ([NanoGPT-II], Model Architecture)
//
// Shapes: a_TW (f32, bf16 or f64), b_TN (any float type, N = W - first; absent: nothing is added), alpha_1
//         and beta_1 (f32, or f64; absent: attr.factor and 1) -> y_TW (attr.out).
// Gradients: d_a = alpha d_y (d_y before `first`), d_b = beta d_y, d_alpha = sum a d_y and d_beta = sum b d_y
// over the mixed columns (0 without b). These sums go row by row over 16 fixed lanes, rows in chunks of 64
// combined in order.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct MixAttr {
  DType out = DType::f32;
  int64_t first = 0;   ///< column of a that the first column of b is added to
  bool alpha = false;  ///< whether alpha is given
  bool beta = false;   ///< whether beta is given
  double factor = 1;   ///< alpha where it is not given
};

/// Inputs, in order.
namespace mix_slot {
enum In : uint32_t { kA, kB, kAlpha, kBeta };
}

Value mix(Tape& tape, DType out, const Value& a_TW, const Value& b_TN, const Value& alpha_1,
          const Value& beta_1, int64_t first = 0);
/// y = factor a, in the type `out`.
Value scale(Tape& tape, DType out, const Value& a_TW, double factor);

const Op& mix_op();
Kernel mix_reference();

}  // namespace ingot
