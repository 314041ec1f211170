// Newton-Schulz orthogonalisation: pushes all singular values of a matrix towards 1 with matrix products
// only.
//
//   X = G / (norm_factor ||G||_F + eps)
//   `steps` times, for a wide X:  A = X X^T, B = b A + c A A, X <- a X + B X
//                  for a tall X:  A = X^T X, B = b A + c A A, X <- a X + X B     (the same with the smaller
//                  A)
//
// A and A A are symmetric, so half of their tiles are computed and mirrored. With the default quintic the
// result is U S V^T with S in [0.68, 1.21] for every singular value that is at least 0.003 of ||G||_F; it
// does not converge to
// 1. A zero matrix stays zero. Source: Keller Jordan's Muon (2024); docs/optimizers.md.
//
// Arithmetic is fp32 with the products of device/cpu/gemm.h: bit-identical for any number of threads and
// instruction set. `bf16_operands` rounds X, A and B to bf16 after each operation, as GPU implementations
// store them.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "optim/param.h"

namespace ingot {

struct NewtonSchulzConfig {
  int64_t steps = 5;
  /// (a, b, c) of each step; the last entry serves all further steps.
  std::vector<std::array<double, 3>> coefficients = {{3.4445, -4.7750, 2.0315}};
  double norm_factor = 1.0;
  double eps = 1e-7;
  bool bf16_operands = false;
};

/// The five per-step coefficients of Polar Express (Amsel et al. 2025) as used in modded-nanogpt from record
/// 38 on.
NewtonSchulzConfig polar_express();

/// Throws Error for no coefficients, steps < 1, norm_factor <= 0 or eps <= 0.
void validate(const NewtonSchulzConfig& config);

/// Memory for one matrix at a time, kept between calls; grows to the largest matrix seen.
class NewtonSchulzScratch {
 public:
  /// Room for a [rows, cols] matrix: one copy of it and two Gram matrices.
  void reserve(int64_t rows, int64_t cols);
  float* x() const { return x_.data(); }
  float* gram() const { return gram_.data(); }
  float* square() const { return square_.data(); }
  int64_t bytes() const {
    return (x_.size() + gram_.size() + square_.size()) * static_cast<int64_t>(sizeof(float));
  }

 private:
  FloatBuffer x_, gram_, square_;
};

/// Replaces the row-major [rows, cols] matrix `g` by its orthogonalised form. Uses the thread pool unless
/// called from inside a parallel region. Zero extents do nothing.
void newton_schulz(float* g, int64_t rows, int64_t cols, const NewtonSchulzConfig& config,
                   NewtonSchulzScratch& scratch);

/// Floating-point operations of newton_schulz: steps * (m^2 n + m^3 + 2 m^2 n) with m <= n the extents; with
/// symmetric == false the 2 m^2 n + 2 m^3 + 2 m^2 n of plain products.
double newton_schulz_flops(int64_t rows, int64_t cols, int64_t steps, bool symmetric = true);

}  // namespace ingot
