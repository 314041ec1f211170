// The order in which Newton-Schulz in f32 takes its products (newton_schulz.h), stated once for the CPU,
// which takes one matrix, and for devices, which take many at a time.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/round.h"
#include "optim/newton_schulz.h"

namespace ingot {

/// Steps between two products with X, by which [rows, cols] is done soonest: each of them costs 3 m m n and
/// saves 3 m m m.
inline int64_t steps_per_gram(int64_t rows, int64_t cols) {
  return 8 * std::max(rows, cols) < 9 * std::min(rows, cols) ? 1 : 3;
}

inline int64_t passes_of(int64_t steps, int64_t stride) {
  return ceil_div(steps, stride);
}

inline const std::array<double, 3>& coefficients_of(const NewtonSchulzConfig& config, int64_t step) {
  return config.coefficients[std::min(static_cast<size_t>(step), config.coefficients.size() - 1)];
}

/// Replaces g by its orthogonalised form. x has g's size, squares are [m, m] with m = min(rows, cols); the
/// last two are used where steps_per_gram() is 3. `compute` has
///   normalise(to, from)              to <- from / (norm_factor ||from||_F + eps); the two may be one
///   gram(to, x)                      to <- x x^T for a wide x, x^T x for a tall one
///   polynomial(to, gram, (a, b, c))  to <- a I + b gram + c gram gram
///   symmetric(to, p, q)              to <- p q, which commute
///   multiply(to, q, x)               to <- q x for a wide x, x q for a tall one
template <class Compute>
void newton_schulz_passes(const Compute& compute, const NewtonSchulzConfig& config, int64_t rows,
                          int64_t cols, float* g, float* x, const std::array<float*, 4>& squares) {
  const int64_t stride = steps_per_gram(rows, cols);
  float* y = g;
  if (passes_of(config.steps, stride) % 2 == 0) std::swap(x, y);  // so that the last pass writes g
  compute.normalise(x, g);
  for (int64_t step = 0; step < config.steps; std::swap(x, y)) {
    auto [gram, p, q, t] = squares;
    compute.gram(gram, x);
    const int64_t first = step, end = std::min(config.steps, step + stride);
    for (; step < end; ++step) {
      compute.polynomial(p, gram, coefficients_of(config, step));
      if (step + 1 < end) {
        compute.symmetric(t, p, gram);
        compute.symmetric(gram, p, t);
      }
      if (step == first) {
        std::swap(q, p);
      } else {
        compute.symmetric(t, p, q);
        std::swap(q, t);
      }
    }
    compute.multiply(y, q, x);
  }
}

}  // namespace ingot
