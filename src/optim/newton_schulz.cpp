// See newton_schulz.h.
#include "optim/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/round.h"
#include "device/gemm/gemm.h"
#include "optim/kernels.h"
#include "optim/newton_schulz_passes.h"
#include "optim/work.h"

namespace ingot {
namespace {

/// body(begin, count) over chunks of an array of `count` elements.
template <class Body>
void for_chunks(int64_t count, Body&& body) {
  parallel_for(ceil_div(count, kOptimChunk), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      body(i * kOptimChunk, std::min(kOptimChunk, count - i * kOptimChunk));
  });
}

double sum_squares(const float* x, int64_t count) {
  std::vector<double> partial(static_cast<size_t>(ceil_div(count, kOptimChunk)));
  for_chunks(count, [&](int64_t begin, int64_t n) {
    partial[static_cast<size_t>(begin / kOptimChunk)] = INGOT_ISA_CALL(sum_squares_chunk)(x + begin, n);
  });
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

void scale(float* y, const float* x, int64_t count, double s) {
  for_chunks(count, [&](int64_t begin, int64_t n) {
    INGOT_ISA_CALL(scale_chunk)(y + begin, x + begin, n, static_cast<float>(s));
  });
}

/// out <- a b, all [m, m], symmetric and with a b = b a. T: float or bf16.
template <class T>
void symmetric_product(float* out, const T* a, const T* b, int64_t m) {
  GemmArgs args;
  args.m = m, args.k = m;
  args.a = a, args.a_type = DTypeOf<T>::value, args.lda = m;
  args.b = b, args.b_type = DTypeOf<T>::value, args.ldb = m;
  args.c = out, args.ldc = m;
  gemm_symmetric(args);
}

/// out <- x x^T for a wide x, x^T x for a tall one: the smaller of the two, [m, m] with m = min(rows, cols).
template <class T>
void gram_matrix(float* out, const T* x, int64_t rows, int64_t cols) {
  GemmArgs args;
  args.m = std::min(rows, cols), args.k = std::max(rows, cols);
  args.a = x, args.a_type = DTypeOf<T>::value, args.a_transposed = rows > cols, args.lda = cols;
  args.c = out, args.ldc = args.m;
  gemm_symmetric(args);
}

/// out <- a b or, accumulating, out + a b, with a [rows, inner] and b [inner, cols].
template <class T>
void matrix_product(float* out, const T* a, const T* b, int64_t rows, int64_t inner, int64_t cols,
                    bool accumulate) {
  GemmArgs args;
  args.m = rows, args.n = cols, args.k = inner;
  args.a = a, args.a_type = DTypeOf<T>::value, args.lda = inner;
  args.b = b, args.b_type = DTypeOf<T>::value, args.ldb = cols;
  args.c = out, args.ldc = cols, args.accumulate = accumulate;
  gemm(args);
}

/// p <- a I + b A + c A A for the Gram matrix A.
void gram_polynomial(float* p, const float* gram, int64_t m, const std::array<double, 3>& coefficients) {
  const auto b = static_cast<float>(coefficients[1]), c = static_cast<float>(coefficients[2]);
  symmetric_product(p, gram, gram, m);
  for_chunks(m * m, [&](int64_t begin, int64_t count) {
    INGOT_ISA_CALL(combine_chunk)(p + begin, gram + begin, count, b, c);
  });
  for (int64_t i = 0; i < m; ++i) p[i * m + i] += static_cast<float>(coefficients[0]);
}

/// y <- s x, rounded to bf16.
void round(bf16* y, const float* x, int64_t count, double s) {
  for_chunks(count, [&](int64_t begin, int64_t n) {
    INGOT_ISA_CALL(round_chunk)(y + begin, x + begin, n, static_cast<float>(s));
  });
}

/// Single steps with operands in bf16. B has no a I, which would round its digits away.
void newton_schulz_bf16(float* g, int64_t rows, int64_t cols, double factor, const NewtonSchulzConfig& config,
                        const NewtonSchulzScratch& scratch) {
  const int64_t m = std::min(rows, cols), numel = rows * cols;
  const bool tall = rows > cols;
  auto *x = reinterpret_cast<bf16*>(scratch.x()), *gram = reinterpret_cast<bf16*>(scratch.square(1)),
       *p = gram + m * m;
  float* square = scratch.square(0);
  round(x, g, numel, factor);
  for (int64_t step = 0; step < config.steps; ++step) {
    const auto& [a, b, c] = coefficients_of(config, step);
    const auto af = static_cast<float>(a), bf = static_cast<float>(b), cf = static_cast<float>(c);
    gram_matrix(square, x, rows, cols);
    round(gram, square, m * m, 1);
    symmetric_product(square, gram, gram, m);
    for_chunks(m * m, [&, gram = gram, p = p](int64_t begin, int64_t n) {
      INGOT_ISA_CALL(combine_bf16_chunk)(p + begin, gram + begin, square + begin, n, bf, cf);
    });
    for_chunks(numel, [&, x = x](int64_t begin, int64_t n) {
      INGOT_ISA_CALL(widen_chunk)(g + begin, x + begin, n, af);
    });
    matrix_product(g, tall ? x : p, tall ? p : x, rows, m, cols, true);
    if (step + 1 < config.steps) round(x, g, numel, 1);
  }
}

/// Of one matrix; see newton_schulz_passes.h.
struct MatrixProducts {
  int64_t rows, cols;
  double factor;  ///< that normalises
  int64_t side() const { return std::min(rows, cols); }
  void normalise(float* to, const float* from) const { scale(to, from, rows * cols, factor); }
  void gram(float* to, const float* x) const { gram_matrix(to, x, rows, cols); }
  void polynomial(float* to, const float* a, const std::array<double, 3>& coefficients) const {
    gram_polynomial(to, a, side(), coefficients);
  }
  void symmetric(float* to, const float* p, const float* q) const { symmetric_product(to, p, q, side()); }
  void multiply(float* to, const float* q, const float* x) const {
    const bool tall = rows > cols;
    matrix_product(to, tall ? x : q, tall ? q : x, rows, side(), cols, false);
  }
};

}  // namespace

NewtonSchulzConfig polar_express() {
  NewtonSchulzConfig config;
  config.coefficients = {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                         {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                         {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                         {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                         {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
  config.norm_factor = 1.02;
  config.eps = 1e-6;
  return config;
}

void validate(const NewtonSchulzConfig& c) {
  if (c.steps < 1) fail("Newton-Schulz has steps = {}, expected >= 1", c.steps);
  if (c.coefficients.empty()) throw Error("Newton-Schulz has no coefficients", "give at least one (a, b, c)");
  if (!(c.norm_factor > 0) || !(c.eps > 0))
    fail("Newton-Schulz has norm_factor = {} and eps = {}, expected both > 0", c.norm_factor, c.eps);
}

namespace {

int squares_of(int64_t rows, int64_t cols) {
  return steps_per_gram(rows, cols) == 1 ? 2 : 4;
}

}  // namespace

int64_t NewtonSchulzScratch::bytes_of(int64_t rows, int64_t cols) {
  const int64_t m = std::min(rows, cols);
  return (rows * cols + squares_of(rows, cols) * m * m) * static_cast<int64_t>(sizeof(float));
}

void NewtonSchulzScratch::reserve(int64_t rows, int64_t cols) {
  const int64_t m = std::min(rows, cols);
  if (rows * cols > x_.size()) x_ = FloatBuffer(rows * cols);
  for (int i = 0; i < squares_of(rows, cols); ++i)
    if (FloatBuffer& s = squares_[static_cast<size_t>(i)]; m * m > s.size()) s = FloatBuffer(m * m);
}

int64_t NewtonSchulzScratch::bytes() const {
  int64_t floats = x_.size();
  for (const FloatBuffer& s : squares_) floats += s.size();
  return floats * static_cast<int64_t>(sizeof(float));
}

void newton_schulz(float* g, int64_t rows, int64_t cols, const NewtonSchulzConfig& config,
                   NewtonSchulzScratch& scratch) {
  const int64_t numel = rows * cols;
  if (numel == 0) return;
  scratch.reserve(rows, cols);
  const double factor = 1.0 / (config.norm_factor * std::sqrt(sum_squares(g, numel)) + config.eps);
  if (config.precision == NewtonSchulzPrecision::bf16)
    return newton_schulz_bf16(g, rows, cols, factor, config, scratch);
  newton_schulz_passes(MatrixProducts{rows, cols, factor}, config, rows, cols, g, scratch.x(),
                       {scratch.square(0), scratch.square(1), scratch.square(2), scratch.square(3)});
}

double newton_schulz_flops(int64_t rows, int64_t cols, int64_t steps, bool symmetric,
                           NewtonSchulzPrecision precision) {
  const double m = static_cast<double>(std::min(rows, cols)), n = static_cast<double>(std::max(rows, cols));
  if (!symmetric) return static_cast<double>(steps) * (4 * m * m * n + 2 * m * m * m);
  const bool single = precision == NewtonSchulzPrecision::bf16;
  const int64_t passes = passes_of(steps, single ? 1 : steps_per_gram(rows, cols));
  return static_cast<double>(passes) * 3 * m * m * n +
         static_cast<double>(4 * steps - 3 * passes) * m * m * m;
}

}  // namespace ingot
