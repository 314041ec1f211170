// linear in plain loops; see linear.h.
#include "ops/reference.h"

#include "ops/linear/linear.h"

namespace ingot {
namespace {

using namespace reference;

void forward(const OpCall& call) {
  const Array x = load(call.in[0]), w = load(call.in[1]), b = load(call.in[2]);
  const auto rows = static_cast<size_t>(call.in[0].dim(0)), n_out = static_cast<size_t>(call.in[1].dim(0)),
             n_in = static_cast<size_t>(call.in[1].dim(1));
  Array y(rows * n_out);
  for (size_t t = 0; t < rows; ++t)
    for (size_t n = 0; n < n_out; ++n) {
      double sum = 0;
      for (size_t k = 0; k < n_in; ++k) sum += x[t * n_in + k] * w[n * n_in + k];
      y[t * n_out + n] = sum + (b.empty() ? 0 : b[n]);
    }
  store(call.out[0], y);
}

void backward_input(const OpCall& call) {
  const Array w = load(call.in[1]), d_y = load(call.d_out[0]);
  const auto rows = static_cast<size_t>(call.d_out[0].dim(0)), n_out = static_cast<size_t>(call.in[1].dim(0)),
             n_in = static_cast<size_t>(call.in[1].dim(1));
  Array d_x(rows * n_in), d_b(n_out);
  for (size_t t = 0; t < rows; ++t)
    for (size_t n = 0; n < n_out; ++n) {
      d_b[n] += d_y[t * n_out + n];
      for (size_t k = 0; k < n_in; ++k) d_x[t * n_in + k] += d_y[t * n_out + n] * w[n * n_in + k];
    }
  store(call.d_in[0], d_x);
  store(call.d_in[2], d_b);
}

void backward_weight(const OpCall& call) {
  const Array x = load(call.in[0]), d_y = load(call.d_out[0]);
  const auto rows = static_cast<size_t>(call.in[0].dim(0)), n_in = static_cast<size_t>(call.in[0].dim(1)),
             n_out = static_cast<size_t>(call.d_out[0].dim(1));
  Array d_w(n_out * n_in);
  for (size_t t = 0; t < rows; ++t)
    for (size_t n = 0; n < n_out; ++n)
      for (size_t k = 0; k < n_in; ++k) d_w[n * n_in + k] += d_y[t * n_out + n] * x[t * n_in + k];
  store(call.d_in[1], d_w);
}

}  // namespace

Kernel linear_reference() {
  return {"reference", accept, forward, backward_input, backward_weight};
}

}  // namespace ingot
