// activation in plain loops; see activation.h.
#include "ops/reference.h"

#include <cmath>

#include "ops/activation/activation.h"

namespace ingot {
namespace {

using namespace reference;

struct ValueAndSlope {
  double f, df;
};

ValueAndSlope evaluate(const ActivationAttr& attr, double x) {
  switch (attr.kind) {
    case ActivationKind::gelu: {
      const double cdf = 0.5 * (1 + std::erf(x * 0.70710678118654752440));
      return {x * cdf, cdf + x * std::exp(-0.5 * x * x) * 0.39894228040143267794};
    }
    case ActivationKind::gelu_tanh:
    case ActivationKind::geglu: {
      const double c = 0.79788456080286535588, a = 0.044715;
      const double t = std::tanh(c * (x + a * x * x * x));
      return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * a * x * x)};
    }
    case ActivationKind::relu2:
      return x > 0 ? ValueAndSlope{x * x, 2 * x} : ValueAndSlope{0, 0};
    case ActivationKind::silu:
    case ActivationKind::swiglu: {
      const double s = 1 / (1 + std::exp(-x));
      return {x * s, s * (1 + x * (1 - s))};
    }
    case ActivationKind::soft_cap:
      return {attr.cap.value(x), attr.cap.slope(attr.cap.value(x))};
  }
  return {0, 0};
}

void forward(const OpCall& call) {
  const auto& attr = call.attr<ActivationAttr>();
  const Array x = load(call.in[0]), p = load(call.in[1]);
  const auto rows = static_cast<size_t>(call.out[0].dim(0)), width = static_cast<size_t>(call.out[0].dim(1));
  const size_t stride = is_gated(attr.kind) ? 2 * width : width;
  Array y(rows * width);
  for (size_t t = 0; t < static_cast<size_t>(rows_before_end(call.in[2], call.in[0].dim(0))); ++t)
    for (size_t i = 0; i < width; ++i) {
      const double f = evaluate(attr, x[t * stride + i]).f;
      y[t * width + i] = (p.empty() ? 1 : p[t]) * f * (is_gated(attr.kind) ? x[t * stride + width + i] : 1);
    }
  store(call.out[0], y);
}

void backward_input(const OpCall& call) {
  const auto& attr = call.attr<ActivationAttr>();
  const Array x = load(call.in[0]), p = load(call.in[1]), d_y = load(call.d_out[0]);
  const auto rows = static_cast<size_t>(call.d_out[0].dim(0)),
             width = static_cast<size_t>(call.d_out[0].dim(1));
  const size_t stride = is_gated(attr.kind) ? 2 * width : width;
  Array d_x(x.size()), d_p(rows);
  for (size_t t = 0; t < static_cast<size_t>(rows_before_end(call.in[2], call.in[0].dim(0))); ++t)
    for (size_t i = 0; i < width; ++i) {
      const auto [f, df] = evaluate(attr, x[t * stride + i]);
      const double scale = p.empty() ? 1 : p[t], d = d_y[t * width + i];
      const double u = is_gated(attr.kind) ? x[t * stride + width + i] : 1;
      d_x[t * stride + i] = scale * d * df * u;
      if (is_gated(attr.kind)) d_x[t * stride + width + i] = scale * d * f;
      d_p[t] += d * f * u;
    }
  store(call.d_in[0], d_x);
  store(call.d_in[1], d_p);
}

}  // namespace

Kernel activation_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}

}  // namespace ingot
