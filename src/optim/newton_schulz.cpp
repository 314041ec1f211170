// See newton_schulz.h.
#include "optim/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "device/cpu/gemm.h"
#include "optim/kernels.h"
#include "optim/work.h"
#include "tensor/dtype.h"

namespace ingot {
namespace {

/// body(begin, count) over chunks of an array of `count` elements.
template <class Body>
void for_chunks(int64_t count, Body&& body) {
  parallel_for((count + kOptimChunk - 1) / kOptimChunk, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      body(i * kOptimChunk, std::min(kOptimChunk, count - i * kOptimChunk));
  });
}

double sum_squares(const float* x, int64_t count) {
  std::vector<double> partial(static_cast<size_t>((count + kOptimChunk - 1) / kOptimChunk));
  for_chunks(count, [&](int64_t begin, int64_t n) {
    partial[static_cast<size_t>(begin / kOptimChunk)] = INGOT_ISA_CALL(sum_squares_chunk)(x + begin, n);
  });
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

void scale(float* y, const float* x, int64_t count, double s, bool round) {
  for_chunks(count, [&](int64_t begin, int64_t n) {
    INGOT_ISA_CALL(scale_chunk)(y + begin, x + begin, n, static_cast<float>(s), round);
  });
}

/// out <- x x^T for a wide x, x^T x for a tall one: the smaller of the two, [m, m] with m = min(rows, cols).
void gram_matrix(float* out, const float* x, int64_t rows, int64_t cols) {
  GemmArgs args;
  args.m = std::min(rows, cols);
  args.k = std::max(rows, cols);
  args.a = x;
  args.a_transposed = rows > cols;
  args.lda = cols;
  args.c = out;
  args.ldc = args.m;
  syrk_full(args);
}

/// c <- c + a b, with a [rows, inner] and b [inner, cols].
void add_product(float* c, const float* a, const float* b, int64_t rows, int64_t inner, int64_t cols) {
  GemmArgs args;
  args.m = rows;
  args.n = cols;
  args.k = inner;
  args.a = a;
  args.lda = inner;
  args.b = b;
  args.ldb = cols;
  args.c = c;
  args.ldc = cols;
  args.accumulate = true;
  gemm(args);
}

void round_if(bool round, float* x, int64_t count) {
  if (round) scale(x, x, count, 1.0, true);
}

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

void NewtonSchulzScratch::reserve(int64_t rows, int64_t cols) {
  const int64_t m = std::min(rows, cols);
  if (rows * cols > x_.size()) x_ = FloatBuffer(rows * cols);
  if (m * m > gram_.size()) {
    gram_ = FloatBuffer(m * m);
    square_ = FloatBuffer(m * m);
  }
}

void newton_schulz(float* g, int64_t rows, int64_t cols, const NewtonSchulzConfig& config,
                   NewtonSchulzScratch& scratch) {
  const int64_t m = std::min(rows, cols), numel = rows * cols;
  if (numel == 0) return;
  scratch.reserve(rows, cols);
  const bool round = config.bf16_operands, tall = rows > cols;
  float* x = g;
  float* y = scratch.x();
  float* gram = scratch.gram();
  float* square = scratch.square();
  scale(x, x, numel, 1.0 / (config.norm_factor * std::sqrt(sum_squares(g, numel)) + config.eps), round);
  for (int64_t step = 0; step < config.steps; ++step) {
    const size_t last = config.coefficients.size() - 1;
    const auto& [a, b, c] = config.coefficients[std::min(static_cast<size_t>(step), last)];
    gram_matrix(gram, x, rows, cols);
    round_if(round, gram, m * m);
    gram_matrix(square, gram, m, m);
    round_if(round, square, m * m);
    for_chunks(m * m,
               [&, b = static_cast<float>(b), c = static_cast<float>(c)](int64_t begin, int64_t count) {
                 INGOT_ISA_CALL(combine_chunk)(square + begin, gram + begin, count, b, c, round);
               });
    scale(y, x, numel, a, round);
    add_product(y, tall ? x : square, tall ? square : x, rows, m, cols);
    round_if(round, y, numel);
    std::swap(x, y);
  }
  if (x != g) std::memcpy(g, x, static_cast<size_t>(numel) * sizeof(float));
}

double newton_schulz_flops(int64_t rows, int64_t cols, int64_t steps, bool symmetric) {
  const double m = static_cast<double>(std::min(rows, cols)), n = static_cast<double>(std::max(rows, cols));
  const double products = symmetric ? m * m * n + m * m * m : 2 * m * m * n + 2 * m * m * m;
  return static_cast<double>(steps) * (products + 2 * m * m * n);
}

}  // namespace ingot
