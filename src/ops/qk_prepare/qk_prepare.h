// qk_prepare: queries and keys between their projection and attention: RMS norm (optional), then rotary
// position embedding on the first rotary.dims channels of each head. Values pass unchanged.
//
//   norm    x <- x r (w + weight_offset),  r = 1 / sqrt(mean of x^2 + eps)   w: of q, of k, or absent (1)
//           the mean is over a head (w [K]) or, with attr.joint, over all query or all key heads (w [H K] and
//           [G K])
//   rotary  pairs (i, j = i + rotary.dims / 2) ("NeoX" or "rotate half" order) or neighbours; angle =
//           position * frequency_i, frequencies by the rule (ops/sequence/rotary.h, which states the accuracy
//           of the angles):
//           x_i <- x_i cos - x_j sin,   x_j <- x_j cos + x_i sin
//
// Shapes: qkv_TW, packed as H query heads, G key heads, G value heads of width K, any float type; weights
//         (f32, or f64); positions_T (i32, below RotaryTable::kMaxPositions, else Error)
//         -> qkv_TW of attr.out, rstd [T, H + G], joint [T, 2] (f32, or f64; no rows without the norm; no
//         gradient).
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
  bool joint = false;  ///< one norm over all query heads, one over all key heads
  double weight_offset = 0;

  /// Norms of a row, and channels of a norm's weight of queries (0) or keys (1).
  int64_t norms() const { return joint ? 2 : heads + kv_heads; }
  int64_t weight_width(int64_t of) const { return head_width * (!joint ? 1 : of == 0 ? heads : kv_heads); }
};

/// Slots, in order.
namespace qk_prepare_slot {
enum In : uint32_t { kQkv, kPositions, kQWeight, kKWeight };
}  // namespace qk_prepare_slot

/// Weights are absent without the norm, and may be absent with it (plain normalisation).
Value qk_prepare(Tape& tape, const QkPrepareAttr& attr, const Value& qkv_TW, const Value& positions_T,
                 const Value& q_weight = {}, const Value& k_weight = {});

const Op& qk_prepare_op();
Kernel qk_prepare_reference();

}  // namespace ingot
