// Newton-Schulz orthogonalisation: matrix products alone push all singular values of a matrix towards 1.
//
//   X = G / (norm_factor ||G||_F + eps)
//   `steps` times, for a wide X:  A = X X^T, P = a I + b A + c A A, X <- P X
//                  for a tall X:  A = X^T X, P = a I + b A + c A A, X <- X P    (so that A is smaller)
//
// Where X is not nearly square, three steps are taken between products with X: A <- P A P is the Gram matrix
// of P X, and Q <- P Q accumulates the factors. A, P and Q are polynomials of one symmetric matrix, so
// half of the tiles of their products are computed and the others mirrored. Rounding errors of A grow by a^2
// per step and start from zero again with a new X. With three steps in between the result is about as near to
// the exact one as with one; with five it would not be (figures in docs/optimizers.md).
//
// With the default quintic the result is U S V^T with S in [0.68, 1.21] for every singular value that is at
// least 0.003 of ||G||_F; it does not converge to 1. A zero matrix stays zero. Sources: Keller Jordan's Muon
// (2024); Gram Newton-Schulz (Zhang, Amsel, Chen & Dao, 2026); docs/optimizers.md.
//
// Arithmetic is fp32 with the products of device/gemm/gemm.h: bit-identical for any number of threads and
// instruction set. `precision = bf16` takes single steps X <- a X + B X, B = b A + c A A, whose products
// read X, A and B in bf16, as GPU implementations store them, at the rate of bf16 products; sums are fp32.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/enum.h"
#include "optim/param.h"

namespace ingot {

enum class NewtonSchulzPrecision { f32, bf16 };
constexpr auto enum_names(NewtonSchulzPrecision) {
  return names_in_order<NewtonSchulzPrecision>("f32", "bf16");
}

struct NewtonSchulzConfig {
  int64_t steps = 5;
  /// (a, b, c) of each step; the last entry serves all further steps.
  std::vector<std::array<double, 3>> coefficients = {{3.4445, -4.7750, 2.0315}};
  double norm_factor = 1.0;
  double eps = 1e-7;
  NewtonSchulzPrecision precision = NewtonSchulzPrecision::f32;  ///< of products' operands
};

/// The five per-step coefficients of Polar Express (Amsel et al. 2025), in modded-nanogpt since record 38.
NewtonSchulzConfig polar_express();

/// Throws Error for no coefficients, steps < 1, norm_factor <= 0 or eps <= 0.
void validate(const NewtonSchulzConfig& config);

/// Memory for one matrix at a time, kept between calls; grows to the largest matrix seen.
class NewtonSchulzScratch {
 public:
  /// Room for a [rows, cols] matrix: one copy of it and two squares of its smaller side; four where it is not
  /// nearly square.
  void reserve(int64_t rows, int64_t cols);
  /// What reserve() takes the first time.
  static int64_t bytes_of(int64_t rows, int64_t cols);
  float* x() const { return x_.data(); }
  float* square(int i) const { return squares_[static_cast<size_t>(i)].data(); }
  int64_t bytes() const;

 private:
  FloatBuffer x_;
  std::array<FloatBuffer, 4> squares_;
};

/// Replaces the row-major [rows, cols] matrix `g` by its orthogonalised form. Uses the thread pool unless
/// called from inside a parallel region. Zero extents do nothing.
void newton_schulz(float* g, int64_t rows, int64_t cols, const NewtonSchulzConfig& config,
                   NewtonSchulzScratch& scratch);

/// Floating-point operations of newton_schulz with m <= n the extents and p products with X (in bf16 one a
/// step): p 3 m^2 n + (4 steps - 3 p) m^3; with symmetric == false the steps (4 m^2 n + 2 m^3) of single
/// steps by plain products.
double newton_schulz_flops(int64_t rows, int64_t cols, int64_t steps, bool symmetric = true,
                           NewtonSchulzPrecision precision = NewtonSchulzPrecision::f32);

}  // namespace ingot
