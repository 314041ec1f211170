// mix's inner loops, compiled once per instruction set.
#include "ops/mix/isa_mix.h"

#include "ops/mix/rows.h"

namespace ingot::INGOT_ISA {
namespace {

template <class A, class B, class Y>
void forward_rows(const MixRows& p, const A* a, const B* b, Y* y, int64_t begin, int64_t end) {
  const Vec alpha = alpha_of(p), beta = beta_of(p);
  for (int64_t t = begin; t < end; ++t) {
    copy_n(y + t * p.width, a + t * p.width, p.first);
    each_vector(p.width - p.first, [&](int64_t i, int n) { mix_n(p, a, b, y, alpha, beta, t, i, n); });
  }
}

template <class A, class B, class Y>
void backward_rows(const MixRows& p, A* d_a, B* d_b, const Y* d_y, int64_t begin, int64_t end) {
  const Vec alpha = alpha_of(p), beta = beta_of(p);
  for (int64_t t = begin; t < end; ++t) {
    if (d_a != nullptr) copy_n(d_a + t * p.width, d_y + t * p.width, p.first, p.accumulate_a);
    each_vector(p.width - p.first,
                [&](int64_t i, int n) { mix_gradient_n(p, d_a, d_b, d_y, alpha, beta, t, i, n); });
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
  sums[0] = sums[1] = 0;
  typed(p.d_y, p.y_type, [&](auto* d_y) {
    for (int64_t t = begin; t < end; ++t) {
      if (p.a != nullptr)
        typed(p.a, p.a_type, [&](auto* a) { sums[0] += mixed_dot(p, a, mixed_begin(p, t), d_y, t); });
      if (p.b != nullptr)
        typed(p.b, p.b_type, [&](auto* b) { sums[1] += mixed_dot(p, b, b_begin(p, t), d_y, t); });
    }
  });
}

}  // namespace ingot::INGOT_ISA
