// add_norm in plain loops; see add_norm.h for the formulas.
#include "ops/reference.h"

#include <cmath>

#include "ops/add_norm/add_norm.h"

namespace ingot {

using namespace reference;

namespace {

void add_norm_reference_forward(const OpCall& call) {
  const auto& attr = call.attr<AddNormAttr>();
  const Array x = load(call.in[0]), y = load(call.in[1]), sx = load(call.in[2]), bx = load(call.in[3]),
              sy = load(call.in[4]), by = load(call.in[5]), w = load(call.in[6]), b = load(call.in[7]);
  const auto rows = static_cast<size_t>(call.in[0].dim(0)), width = static_cast<size_t>(call.in[0].dim(1));
  Array s(x), h(x.size()), rstd(rows), mean(rows);
  for (size_t t = 0; t < rows; ++t) {
    for (size_t d = 0; d < width; ++d) {
      const size_t i = t * width + d;
      if (attr.merge == MergeKind::add) s[i] = x[i] + y[i];
      if (attr.merge == MergeKind::affine) s[i] = (x[i] + bx[d]) * sx[d];
      if (attr.merge == MergeKind::scaled) s[i] = (y[i] + by[d]) * sy[d] + (x[i] + bx[d]) * sx[d];
    }
  }
  if (attr.merge != MergeKind::none) {  // the norm is of what later ops read, rounded
    store(call.out[0], s);
    s = load(call.out[0]);
  }
  for (size_t t = 0; t < rows; ++t) {
    for (size_t d = 0; d < width; ++d) mean[t] += s[t * width + d];
    mean[t] = attr.norm == NormKind::layer ? mean[t] / static_cast<double>(width) : 0;
    double square = 0;
    for (size_t d = 0; d < width; ++d) square += (s[t * width + d] - mean[t]) * (s[t * width + d] - mean[t]);
    rstd[t] = 1 / std::sqrt(square / static_cast<double>(width) + attr.eps);
    for (size_t d = 0; d < width; ++d)
      h[t * width + d] =
          (s[t * width + d] - mean[t]) * rstd[t] * (w.empty() ? 1 : w[d] + attr.weight_offset) +
          (b.empty() ? 0 : b[d]);
  }
  store(call.out[1], h);
  store(call.out[2], rstd);
  if (attr.norm == NormKind::layer) store(call.out[3], mean);
}

void add_norm_reference_backward(const OpCall& call) {
  const auto& attr = call.attr<AddNormAttr>();
  const Array s = load(attr.merge == MergeKind::none ? call.in[0] : call.out[0]);
  const Array x = load(call.in[0]), y = load(call.in[1]), sx = load(call.in[2]), bx = load(call.in[3]),
              sy = load(call.in[4]), by = load(call.in[5]), w = load(call.in[6]), rstd = load(call.out[2]),
              mean = load(call.out[3]), d_s = load(call.d_out[0]), d_h = load(call.d_out[1]);
  const size_t rows = rstd.size(), width = static_cast<size_t>(add_norm_width(call));
  const auto weight = [&](size_t d) { return w.empty() ? 1.0 : w[d] + attr.weight_offset; };
  Array g(s.size()), d_y(s.size()), d_w(width), d_b(width), d_sx(width), d_bx(width), d_sy(width),
      d_by(width);
  for (size_t t = 0; t < rows; ++t) {
    double sum = 0, dot = 0;  // of d_h w and of d_h w xhat
    for (size_t d = 0; d < width && !d_h.empty(); ++d) {
      const size_t i = t * width + d;
      const double xhat = (s[i] - (mean.empty() ? 0 : mean[t])) * rstd[t];
      sum += d_h[i] * weight(d);
      dot += d_h[i] * weight(d) * xhat;
      d_w[d] += d_h[i] * xhat;
      d_b[d] += d_h[i];
    }
    if (attr.norm == NormKind::rms) sum = 0;
    for (size_t d = 0; d < width; ++d) {
      const size_t i = t * width + d;
      const double xhat = (s[i] - (mean.empty() ? 0 : mean[t])) * rstd[t];
      double grad = d_s.empty() ? 0 : d_s[i];
      if (!d_h.empty())
        grad += rstd[t] * (d_h[i] * weight(d) - (sum + xhat * dot) / static_cast<double>(width));
      g[i] = d_y[i] = grad;
      if (attr.merge == MergeKind::affine || attr.merge == MergeKind::scaled) {
        g[i] = grad * sx[d];
        d_sx[d] += grad * (x[i] + bx[d]);
        d_bx[d] += grad * sx[d];
      }
      if (attr.merge == MergeKind::scaled) {
        d_y[i] = grad * sy[d];
        d_sy[d] += grad * (y[i] + by[d]);
        d_by[d] += grad * sy[d];
      }
    }
  }
  store(call.d_in[0], g);
  store(call.d_in[1], d_y);
  store(call.d_in[2], d_sx);
  store(call.d_in[3], d_bx);
  store(call.d_in[4], d_sy);
  store(call.d_in[5], d_by);
  store(call.d_in[6], d_w);
  store(call.d_in[7], d_b);
}

}  // namespace

Kernel add_norm_reference() {
  return {"reference", accept, add_norm_reference_forward, add_norm_reference_backward, nullptr};
}

}  // namespace ingot
