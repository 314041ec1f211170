// cca: the preparation of compressed convolutional attention ([ZAYA1-AMD] §IV-A1, App. C; [ZAYA1-8B]
// §II-A1, App. C), between the fused projection and ops/attention. Per document or cached sequence, with
// z_t = [q_t ; k_t] (H + G heads of width K, C = (H + G) K channels):
//
//   u_t     = a0 * z_{t-1} + a1 * z_t + b0                  depthwise convolution of width 2, per channel
//   c_t[n]  = G0[n] u_{t-1}[n] + G1[n] u_t[n] + b1[n]       grouped convolution of width 2, per head n
//   q^_h    = c_h + (q_h + k_g(h)) / 2,  g(h) = h / (H / G)            mean skip, on the raw projections
//   k^_j    = c_{H+j} + (mean over the heads h of group j of q_h + k_j) / 2
//   q~_h    = sqrt(K) q^_h / |q^_h|
//   k~_j    = tau_j sqrt(K) k^_j / |k^_j|,  |x| = sqrt(sum x^2 + 1e-12)
//   rotary position embedding on the first rotary.dims channels of each q~ and k~ (ops/qk_prepare)
//   v_t     = [current_t ; delayed_{t-1}]                   the last `delayed` value channels come one token
//           late
//
// `delayed` is half of the model's value channels; under tensor parallelism a rank has those of its own
// heads. At a document's start z_{-1} = z_{-2} = 0 and delayed_{-1} = 0: the input is padded once, so u_{-1}
// = b0, not 0.
//
// Inputs:  qkv_TW = [q | k | current | delayed], W = (H + 2 G) K: f32, bf16 or f64.
//          positions_T: i32.
//          depthwise [C, 2] (column 0 is the older tap), depthwise_bias [C], grouped_bias [C], temperature
//          [G]: f32 or f64.
//          grouped [H + G, K, 2 K]: f32, bf16 or f64; row o of head n is [G0[n][o, :] | G1[n][o, :]].
//          From Hugging Face: conv_qk_depthwise.weight [C, 1, 2] unchanged; conv_qk_grouped.weight [C, K, 2]
//          with its last two dimensions exchanged; qk_norm.temp unchanged.
// Outputs: packed [q~ | k~ | v] of attr.out, ready for ops/attention; 1 / |q^_h| and 1 / |k^_j| as [T, H +
// G].
//
// All arithmetic is in fp32 on the rounded projections, with one rounding at the end. The grouped convolution
// is a matrix product (numerics rule 2). Sums of squares use 16 fixed lanes (rule 3). The gradients of the
// small parameters are sums over tokens in chunks of 64 rows, combined in order.
// Backward recomputes u instead of keeping it. It takes the normalised heads from the output, rotated back
// and divided by their factor. It recomputes them from c where that would lose digits: a bf16 output, a
// rotation with a magnitude, or a temperature that (times sqrt(K)) is not a normal number.
// Sequences with a state (inference) start from the state's last two z and last delayed value, append their
// own, and have no backward.
#pragma once
#include "ops/sequence/batch_layout.h"
#include "ops/sequence/rotary.h"
#include "tape/tape.h"

namespace ingot {

struct CcaAttr {
  int64_t heads = 1;       ///< H
  int64_t kv_heads = 1;    ///< G, divides H
  int64_t head_width = 0;  ///< K; G K is even unless `delayed` is given
  RotaryRule rotary = {};  ///< dims at most K
  DType out = DType::f32;
  const BatchLayout* rows = nullptr;  ///< nullptr: all rows are one document
  int64_t layer = 0;                  ///< of the states
  int64_t delayed = -1;               ///< value channels that come late, at most G K; -1: half of them

  /// Whether the result is exact enough, and its rotation undone by rotating back.
  bool backward_reads_result() const { return out != DType::bf16 && rotary.magnitude == 1; }
  int64_t delayed_channels() const { return delayed >= 0 ? delayed : kv_heads * head_width / 2; }
};

/// Inputs, in order. Products read `grouped` alone: a model opened for inference may have it packed.
namespace cca_input {
enum : uint32_t {
  kQkv,
  kPositions,
  kDepthwise,
  kDepthwiseBias,
  kGrouped,
  kGroupedBias,
  kTemperature,
  kDocuments  ///< i32, optional: in place of CcaAttr::rows (ops/sequence/documents.h)
};
}
inline constexpr double kCcaNormEps = 1e-12;

struct CcaParams {
  Value depthwise, depthwise_bias;
  Value grouped, grouped_bias;
  Value temperature;
};

Value cca(Tape& tape, const CcaAttr& attr, const Value& qkv_TW, const Value& positions_T,
          const CcaParams& params, const Value& documents = {});

const Op& cca_op();
Kernel cca_reference();

}  // namespace ingot
