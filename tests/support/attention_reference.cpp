// See attention_reference.h.
#include "support/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ingot {
namespace {

/// One row of one head: the visible scores, the slope of the softcap at each, and the probabilities.
template <class Real>
struct Row {
  int64_t first = 0;
  std::vector<Real> slope, p;
  Real lse = 0;
};

template <class Real>
Row<Real> probabilities(const AttentionReference<Real>& a, int64_t i, int64_t head) {
  const int64_t group = head / (a.heads / a.kv_heads);
  const Real* q = a.q + (i * a.heads + head) * a.width;
  Row<Real> row;
  row.first = a.window > 0 ? std::max<int64_t>(0, i - a.window + 1) : 0;
  Real top = -INFINITY;
  for (int64_t j = row.first; j <= i; ++j) {
    const Real* k = a.k + (j * a.kv_heads + group) * a.width;
    Real dot = 0;
    for (int64_t d = 0; d < a.width; ++d) dot += q[d] * k[d];
    Real score = dot * static_cast<Real>(a.scale);
    Real slope = static_cast<Real>(a.scale);
    if (a.softcap > 0) {
      const Real cap = static_cast<Real>(a.softcap);
      const Real t = std::tanh(score / cap);
      score = cap * t;
      slope *= 1 - t * t;
    }
    row.p.push_back(score);
    row.slope.push_back(slope);
    top = std::max(top, score);
  }
  Real sum = 0;
  for (Real& x : row.p) sum += x = std::exp(x - top);
  for (Real& x : row.p) x /= sum;
  row.lse = top + std::log(sum);
  return row;
}

}  // namespace

template <class Real>
void attention_reference_forward(const AttentionReference<Real>& a, Real* o, Real* lse) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t head = 0; head < a.heads; ++head) {
      const int64_t group = head / (a.heads / a.kv_heads);
      const Row<Real> row = probabilities(a, i, head);
      Real* out = o + (i * a.heads + head) * a.width;
      std::fill_n(out, a.width, Real{0});
      for (size_t j = 0; j < row.p.size(); ++j) {
        const Real* v = a.v + ((row.first + static_cast<int64_t>(j)) * a.kv_heads + group) * a.width;
        for (int64_t d = 0; d < a.width; ++d) out[d] += row.p[j] * v[d];
      }
      lse[i * a.heads + head] = row.lse;
    }
}

template <class Real>
void attention_reference_backward(const AttentionReference<Real>& a, const Real* d_o, Real* d_q, Real* d_k,
                                  Real* d_v) {
  std::fill_n(d_q, a.rows * a.heads * a.width, Real{0});
  std::fill_n(d_k, a.rows * a.kv_heads * a.width, Real{0});
  std::fill_n(d_v, a.rows * a.kv_heads * a.width, Real{0});
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t head = 0; head < a.heads; ++head) {
      const int64_t group = head / (a.heads / a.kv_heads);
      const Row<Real> row = probabilities(a, i, head);
      const int64_t at = (i * a.heads + head) * a.width;
      std::vector<Real> d_p(row.p.size());
      Real delta = 0;
      for (size_t j = 0; j < row.p.size(); ++j) {
        const int64_t key = ((row.first + static_cast<int64_t>(j)) * a.kv_heads + group) * a.width;
        for (int64_t d = 0; d < a.width; ++d) {
          d_p[j] += d_o[at + d] * a.v[key + d];
          d_v[key + d] += row.p[j] * d_o[at + d];
        }
        delta += row.p[j] * d_p[j];
      }
      for (size_t j = 0; j < row.p.size(); ++j) {
        const int64_t key = ((row.first + static_cast<int64_t>(j)) * a.kv_heads + group) * a.width;
        const Real d_s = row.p[j] * (d_p[j] - delta) * row.slope[j];
        for (int64_t d = 0; d < a.width; ++d) {
          d_q[at + d] += d_s * a.k[key + d];
          d_k[key + d] += d_s * a.q[at + d];
        }
      }
    }
}

template void attention_reference_forward(const AttentionReference<float>&, float*, float*);
template void attention_reference_forward(const AttentionReference<double>&, double*, double*);
template void attention_reference_backward(const AttentionReference<float>&, const float*, float*, float*,
                                           float*);
template void attention_reference_backward(const AttentionReference<double>&, const double*, double*, double*,
                                           double*);

}  // namespace ingot
