// See optim_reference.h.
#include "support/optim_reference.h"

#include <algorithm>
#include <cmath>

namespace ingot::reference {
namespace {

/// [m, k] times [k, n]; element (i, j) of an operand is at i * row_stride + j * col_stride.
struct Matrix {
  const double* data;
  int64_t row_stride;
  int64_t col_stride;
  double operator()(int64_t i, int64_t j) const { return data[i * row_stride + j * col_stride]; }
};

Values product(const Matrix& a, const Matrix& b, int64_t m, int64_t k, int64_t n) {
  Values c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a(i, l) * b(l, j);
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  return c;
}

}  // namespace

void adamw(Values& w, Values& m, Values& v, const Values& grad, const AdamWConfig& c, double lr,
           double weight_decay, int64_t t, double grad_scale) {
  const double correction1 = 1 - std::pow(c.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(c.beta2, static_cast<double>(t));
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = grad[i] * grad_scale;
    m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
    v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
    w[i] -= lr * weight_decay * w[i];
    w[i] -= lr * (m[i] / correction1) / (std::sqrt(v[i] / correction2) + c.eps);
  }
}

void ademamix(Values& w, Values& m, Values& slow, Values& v, const Values& grad, const AdamWConfig& c,
              const AdEMAMixConfig& mix, double lr, double weight_decay, int64_t t, double grad_scale) {
  const double correction1 = 1 - std::pow(c.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(c.beta2, static_cast<double>(t));
  const double alpha = ademamix_alpha(mix, t), beta3 = ademamix_beta3(mix, c.beta1, t);
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = grad[i] * grad_scale;
    m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
    slow[i] = beta3 * slow[i] + (1 - beta3) * g;
    v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
    w[i] -= lr * weight_decay * w[i];
    w[i] -= lr * (m[i] / correction1 + alpha * slow[i]) / (std::sqrt(v[i] / correction2) + c.eps);
  }
}

Values newton_schulz(const Values& g, int64_t rows, int64_t cols, const NewtonSchulzConfig& config) {
  const bool tall = rows > cols;
  const int64_t m = std::min(rows, cols), n = std::max(rows, cols);
  double norm = 0;
  for (const double value : g) norm += value * value;
  const double factor = 1 / (config.norm_factor * std::sqrt(norm) + config.eps);
  Values x(g.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      x[static_cast<size_t>(i * n + j)] = factor * g[static_cast<size_t>(tall ? j * m + i : i * n + j)];
  for (int64_t step = 0; step < config.steps; ++step) {
    const auto& [a, b, c] =
        config.coefficients[std::min(static_cast<size_t>(step), config.coefficients.size() - 1)];
    const Values gram = product({x.data(), n, 1}, {x.data(), 1, n}, m, n, m);
    Values poly = product({gram.data(), m, 1}, {gram.data(), m, 1}, m, m, m);
    for (size_t i = 0; i < poly.size(); ++i) poly[i] = b * gram[i] + c * poly[i];
    const Values bx = product({poly.data(), m, 1}, {x.data(), n, 1}, m, m, n);
    for (size_t i = 0; i < x.size(); ++i) x[i] = a * x[i] + bx[i];
  }
  if (!tall) return x;
  Values out(x.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) out[static_cast<size_t>(j * m + i)] = x[static_cast<size_t>(i * n + j)];
  return out;
}

void muon(Values& w, Values& momentum, const Values& grad, int64_t rows, int64_t cols,
          const MuonConfig& config, double beta, double lr, double weight_decay, double grad_scale) {
  const double weight = config.form == MomentumForm::lerp ? 1 - beta : 1;
  Values input(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = weight * grad[i] * grad_scale;
    momentum[i] = beta * momentum[i] + g;
    input[i] = config.nesterov ? g + beta * momentum[i] : momentum[i];
  }
  const Values o = newton_schulz(input, rows, cols, config.newton_schulz);
  const double scale = muon_scale(config, rows, cols);
  for (size_t i = 0; i < w.size(); ++i) w[i] = (1 - lr * weight_decay) * w[i] - lr * scale * o[i];
}

}  // namespace ingot::reference
