// add_norm: merges a sublayer's output into the residual stream and normalises the result, in one op, so that the
// gradient merge of the stream has one owner.
//
//   merge:  none    s = x                                      (first norm of a model; the stream output is empty)
//           add     s = x + y
//           affine  s = (x + b_x) * s_x                         (ZAYA1's scaled input embedding)
//           scaled  s = (y + b_y) * s_y + (x + b_x) * s_x       (ZAYA1 residual scaling, spec zaya1 §1.4, 001 eq 6)
//   norm:   rms     h = s * r * w,            r = 1 / sqrt(mean(s^2) + eps)
//           layer   h = (s - m) * r * w (+b), r = 1 / sqrt(mean((s - m)^2) + eps),  m = mean(s)
//           w may be absent: 1
//
// Shapes: x_TD (stream: f32, or f64), y_TD (any float type), vectors [D] of the stream's type;
// outputs s_TD (stream's type), h_TD (attr.h_dtype), rstd_T and mean_T (stream's type; mean is empty for rms).
// Statistics and sums in fp32 over 16 fixed lanes (docs/numerics.md). Parameter gradients are sums over tokens in
// chunks of 64 rows combined in order.
#pragma once
#include "ops/add_norm/merge_kind.h"
#include "tape/tape.h"

namespace ingot {

enum class NormKind : uint8_t { rms, layer };
constexpr auto enum_names(NormKind) {
  return names_in_order<NormKind>("rms", "layer");
}

struct AddNormAttr {
  NormKind norm = NormKind::rms;
  MergeKind merge = MergeKind::none;
  DType h_dtype = DType::f32;
  double eps = 1e-5;
};

/// The vectors of a merge; absent where the merge has none.
struct MergeParams {
  Value stream_scale, stream_bias;  ///< s_x, b_x
  Value y_scale, y_bias;            ///< s_y, b_y
};

struct AddNormResult {
  Value stream;  ///< s (x itself for merge none)
  Value h;
};

AddNormResult add_norm(Tape& tape, const AddNormAttr& attr, const Value& x_TD, const Value& y_TD,
                       const MergeParams& merge, const Value& weight_D, const Value& bias_D = {});

const Op& add_norm_op();

}  // namespace ingot
