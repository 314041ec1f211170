// mix's inner loops, compiled once per instruction set.
#include "ops/mix/isa_mix.h"

#include "device/simd/loops.h"
#include "device/simd/reduce.h"

namespace ingot::INGOT_ISA {
namespace {

template <class A, class B, class Y>
void forward_rows(const MixRows& p, const A* a, const B* b, Y* y, int64_t begin, int64_t end) {
  const int64_t mixed = p.width - p.first;
  const Vec alpha = set1(p.alpha), beta = set1(p.beta);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = t * p.width + p.first;
    copy_n(y + t * p.width, a + t * p.width, p.first);
    each_vector(mixed, [&](int64_t i, int n) {
      Vec v = load_n(a + at + i, n) * alpha;
      if (b != nullptr) v = fma(load_n(b + t * mixed + i, n), beta, v);
      store_n(y + at + i, v, n);
    });
  }
}

template <class A, class B, class Y>
void backward_rows(const MixRows& p, A* d_a, B* d_b, const Y* d_y, int64_t begin, int64_t end) {
  const int64_t mixed = p.width - p.first;
  const Vec alpha = set1(p.alpha), beta = set1(p.beta);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = t * p.width + p.first;
    if (d_a != nullptr) copy_n(d_a + t * p.width, d_y + t * p.width, p.first, p.accumulate_a);
    each_vector(mixed, [&](int64_t i, int n) {
      const Vec d = load_n(d_y + at + i, n);
      if (d_a != nullptr) put_n(d_a + at + i, d * alpha, n, p.accumulate_a);
      if (d_b != nullptr) put_n(d_b + t * mixed + i, d * beta, n, p.accumulate_b);
    });
  }
}

}  // namespace

void mix_forward(const MixRows& p, int64_t begin, int64_t end) {
  typed(p.a, p.a_type, [&](auto* a) {
    typed(p.b, p.b_type,
          [&](auto* b) { typed(p.y, p.y_type, [&](auto* y) { forward_rows(p, a, b, y, begin, end); }); });
  });
}

void mix_backward(const MixRows& p, int64_t begin, int64_t end) {
  typed(p.d_a, p.a_type, [&](auto* d_a) {
    typed(p.d_b, p.b_type, [&](auto* d_b) {
      typed(p.d_y, p.y_type, [&](auto* d_y) { backward_rows(p, d_a, d_b, d_y, begin, end); });
    });
  });
}

void mix_scalar_sums(const MixRows& p, int64_t begin, int64_t end, float* sums) {
  const int64_t mixed = p.width - p.first;
  sums[0] = sums[1] = 0;
  typed(p.d_y, p.y_type, [&](auto* d_y) {
    for (int64_t t = begin; t < end; ++t) {
      auto* d = d_y + t * p.width + p.first;
      if (p.a != nullptr)
        typed(p.a, p.a_type, [&](auto* a) { sums[0] += row_dot(a + t * p.width + p.first, d, mixed); });
      if (p.b != nullptr) typed(p.b, p.b_type, [&](auto* b) { sums[1] += row_dot(b + t * mixed, d, mixed); });
    }
  });
}

}  // namespace ingot::INGOT_ISA
