// add_norm: merges a sublayer's output into the residual stream and normalises the result. It is one op, so
// that one kernel writes the gradient of the stream.
//
//   merge   none    s = x                                   (first norm; the stream output is empty)
//           add     s = x + y
//           affine  s = (x + b_x) s_x                       (ZAYA1's scaled input embedding)
//           scaled  s = (y + b_y) s_y + (x + b_x) s_x       (residual scaling, [ZAYA1-AMD] §IV-A3)
//   norm    rms     h = s r w,            r = 1 / sqrt(mean(s^2) + eps)
//           layer   h = (s - m) r w + b,  r = 1 / sqrt(mean((s - m)^2) + eps),  m = mean(s)
//           w is the weight + attr.weight_offset; weight and b may be absent: w = 1, b = 0
//
// Shapes: x_TD (the stream: f32, or f64), y_TD (any float type), vectors [D] of the stream's type
//         -> s_TD (the stream's type), h_TD (attr.h_dtype), rstd_T and mean_T (the stream's type; mean: empty
//         for rms).
// Statistics and sums are in fp32 over 16 fixed lanes (docs/numerics.md). Gradients of the vectors are sums
// over tokens in chunks of 64 rows combined in order.
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
  double weight_offset = 0;
};

/// Slots, in order.
namespace add_norm_slot {
enum In : uint32_t { kX, kY, kStreamScale, kStreamBias, kYScale, kYBias, kWeight, kBias };
enum Out : uint32_t { kStream, kH, kRstd, kMean };
}  // namespace add_norm_slot

/// D of a call; backward reads x or the merged stream.
inline int64_t add_norm_width(const OpCall& call) {
  const Tensor& x = call.in[add_norm_slot::kX];
  return (x.defined() ? x : call.out[add_norm_slot::kStream]).dim(1);
}

/// The vectors of a merge; absent where the merge has none.
struct MergeParams {
  Value stream_scale, stream_bias;  ///< s_x, b_x
  Value y_scale, y_bias;            ///< s_y, b_y
};

struct AddNormResult {
  Value stream;  ///< s (x itself for merge none)
  Value h;
  Value rstd_T, mean_T;  ///< statistics of s; mean: empty for rms
};

AddNormResult add_norm(Tape& tape, const AddNormAttr& attr, const Value& x_TD, const Value& y_TD,
                       const MergeParams& merge, const Value& weight_D, const Value& bias_D = {});

const Op& add_norm_op();
Kernel add_norm_reference();

}  // namespace ingot
