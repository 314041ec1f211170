// qk_prepare: queries and keys between their projection and attention: RMS norm per head (optional), then
// rotary position embedding on the first rotary.dims channels of each head. Values pass unchanged.
//
//   norm    x <- x r w,  r = 1 / sqrt(mean over the head of x^2 + eps)   w [K]: of q, of k, or absent
//   rotary  pairs (i, j = i + rotary.dims / 2) ("NeoX" or "rotate half" order) or neighbours; angle =
//           position * frequency_i, frequencies by the rule (ops/sequence/rotary.h, which states the accuracy
//           of the angles):
//           x_i <- x_i cos - x_j sin,   x_j <- x_j cos + x_i sin
//
// Shapes: qkv_TW, packed as H query heads, G key heads, G value heads of width K, any float type; weights [K]
//         (f32, or f64); positions_T (i32, below RotaryTable::kMaxPositions, else Error)
//         -> qkv_TW of attr.out, rstd [T, H + G] (f32, or f64; no rows without the norm; no gradient).
// Arithmetic is in fp32 on the values as they are, with one rounding at the end; the sum of squares uses 16
// fixed lanes. Weight gradients are sums over tokens and heads in chunks of 64 rows combined in order.
#pragma once
#include "ops/sequence/rotary.h"
#include "tape/tape.h"

namespace ingot {

struct QkPrepareAttr {
  int64_t heads = 1;       ///< H
  int64_t kv_heads = 1;    ///< G
  int64_t head_width = 0;  ///< K
  RotaryRule rotary = {};  ///< dims at most K
  bool norm = false;
  double eps = 1e-6;
  DType out = DType::f32;
};

/// Weights are absent without the norm, and may be absent with it (plain normalisation).
Value qk_prepare(Tape& tape, const QkPrepareAttr& attr, const Value& qkv_TW, const Value& positions_T,
                 const Value& q_weight_K = {}, const Value& k_weight_K = {});

const Op& qk_prepare_op();
Kernel qk_prepare_reference();

}  // namespace ingot
