// The kernels of isa_cca.cpp: all of cca but the grouped convolution's products, over ranges of rows. Plain:
// compiled for each instruction set.
//
// Buffers of the convolutions are head-major, [H + G][rows][K] and one row of padding, so that products read
// them as matrices. A span of n rows has n + 1 view rows: t = -1, then t = 0 .. n - 1; the pair u_{t-1}, u_t
// of a head lies in 2 K adjacent floats. Products write row t where view row t - 1 lies. Buffers hold a block
// of rows at a time and stay in a cache; d_c holds all rows, and so does u where nothing else is recomputed.
// Pointers are shifted back, so that view rows count from the call's first.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/gpu/anywhere.h"
#include "device/simd/isa.h"
#include "ops/sequence/rotary.h"

namespace ingot {

struct CcaRows {
  int64_t heads, kv_heads, width;
  int64_t delayed;  ///< value channels that come one token late: the last ones
  RotaryTable rotary;
  const int32_t* positions;
  const void* x;  ///< packed rows of the call
  DType x_type;
  const float *older, *newer;  ///< taps of the depthwise convolution, [C] each
  const float* depthwise_bias;
  const float* temperature;
  float norm_eps;
  int64_t view_rows;   ///< of a head in d_c
  int64_t block_rows;  ///< of a head in u, c and d_u
  float* u;
  float* c;              ///< without the mean skip; view row t - 1
  float* d_c;            ///< view row t; zeros at t = -1
  float* d_u;            ///< view row t
  void* y;               ///< packed result; backward: nullptr: d_c follows from c instead
  float* inverse_norms;  ///< [rows, H + G]
  const void* d_y;
  DType y_type;  ///< of y and d_y
  void* d_x;     ///< of x_type; nullptr: not wanted
  bool accumulate;
};

/// Whether heads follow from the result: every temperature, and it times sqrt(K), is a normal number.
INGOT_ANYWHERE bool can_be_divided_by(const float* temperatures, int64_t count, float root) {
  const auto is_normal = [](float x) {
    const float size = x < 0 ? -x : x;
    return size >= 1.17549435e-38f && size <= 3.40282347e38f;
  };
  for (int64_t j = 0; j < count; ++j)
    if (!is_normal(temperatures[j]) || !is_normal(root * temperatures[j])) return false;
  return true;
}

/// Rows begin .. end (of the call) of one span.
struct CcaPiece {
  int64_t begin, end;
  int64_t span_begin, span_end;  ///< rows of the span
  int64_t view;                  ///< view row of t = -1
  const float *before1,
      *before2;  ///< z_{-1} and z_{-2} of the span, then the delayed values; zeros at a document's start
};

/// Partial sums of one chunk of rows, as the kernels below add to them.
struct CcaSums {
  float *older, *newer, *depthwise_bias, *grouped_bias;  ///< [C] each
  float* temperature;                                    ///< [G]
};

/// u_{-1} of a span; and, where d_c is not null, zeros there.
INGOT_ISA_KERNEL(void, cca_span_start, (const CcaRows& args, const CcaPiece& piece));
/// u of the piece's rows.
INGOT_ISA_KERNEL(void, cca_depthwise, (const CcaRows& args, const CcaPiece& piece));
/// From c to the result.
INGOT_ISA_KERNEL(void, cca_finish, (const CcaRows& args, const CcaPiece& piece));
/// From the cotangent and the result, or c, to d_c.
INGOT_ISA_KERNEL(void, cca_finish_backward,
                 (const CcaRows& args, const CcaPiece& piece, const CcaSums& sums));
/// From d_u and d_c to d_x.
INGOT_ISA_KERNEL(void, cca_depthwise_backward,
                 (const CcaRows& args, const CcaPiece& piece, const CcaSums& sums));

}  // namespace ingot
