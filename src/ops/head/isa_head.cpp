// head's work on rows of logits, compiled once per instruction set.
#include "ops/head/isa_head.h"

#include "ops/head/rows.h"

namespace ingot::INGOT_ISA {

void head_soft_cap(const SoftCapFactors& cap, float* logits, int64_t n) {
  each_vector(
      n, [&](int64_t i, int count) { store_n(logits + i, soft_cap(cap, load_n(logits + i, count)), count); });
}

void head_scale(float scale, float* logits, int64_t n) {
  each_vector(
      n, [&](int64_t i, int count) { store_n(logits + i, load_n(logits + i, count) * set1(scale), count); });
}

float head_softmax(float* weights, const float* logits, float scale, int64_t n) {
  const float top = row_max(logits, n) * scale;
  return top + log_of(lane_sum(n, [&](int64_t j, int i, int rest) {
           const Vec w = vexp(load_rest(logits + j, i, rest, -__builtin_inff()) * set1(scale) - set1(top));
           const int count = rest - i * kLanes;
           if (count > 0) store_n(weights + j + i * kLanes, w, count < kLanes ? count : kLanes);
           return w;
         }));
}

void head_statistics(const HeadStatistics& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) statistics_row(p, t);
}

void head_d_logits(const HeadCotangents& p, int64_t begin, int64_t end) {
  typed(p.d_logits, p.d_type, [&](auto* d) {
    for (int64_t t = begin; t < end; ++t) d_logits_row(p, d + t * p.d_stride, t);
  });
}

}  // namespace ingot::INGOT_ISA
