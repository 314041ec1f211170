// Attention as the formula says it, in float or double: what attention.h is tested against. One document at a
// time.
#pragma once
#include <cstdint>

namespace ingot {

template <class Real>
struct AttentionReference {
  int64_t rows, heads, kv_heads, width;
  double scale;
  int64_t window;         ///< 0: none
  double softcap;         ///< 0: none
  const Real *q, *k, *v;  ///< [rows, heads * width], [rows, kv_heads * width] twice; contiguous
};

/// Two passes: the row's maximum, then exponentials, their sum and the weighted mean. o [rows, heads *
/// width], lse [rows, heads].
template <class Real>
void attention_reference_forward(const AttentionReference<Real>& args, Real* o, Real* lse);

/// Gradients for the output gradient d_o; d_q, d_k and d_v have the shapes of q, k and v and are set.
template <class Real>
void attention_reference_backward(const AttentionReference<Real>& args, const Real* d_o, Real* d_q, Real* d_k,
                                  Real* d_v);

}  // namespace ingot
