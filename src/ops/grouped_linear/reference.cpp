// grouped_linear in plain loops; see grouped_linear.h.
#include "ops/reference.h"

#include "ops/grouped_linear/grouped_linear.h"

namespace ingot {
namespace {

using namespace reference;

/// Calls body(expert, row) for every row that belongs to an expert.
template <class Body>
void for_rows(const std::vector<int32_t>& offsets, Body&& body) {
  for (size_t e = 0; e + 1 < offsets.size(); ++e)
    for (auto r = static_cast<size_t>(offsets[e]); r < static_cast<size_t>(offsets[e + 1]); ++r) body(e, r);
}

void forward(const OpCall& call) {
  const Array x = load(call.in[0]), w = load(call.in[1]);
  const auto n_out = static_cast<size_t>(call.in[1].dim(1)), n_in = static_cast<size_t>(call.in[1].dim(2));
  Array y(static_cast<size_t>(call.out[0].numel()));
  for_rows(load_ints(call.in[2]), [&](size_t e, size_t r) {
    for (size_t n = 0; n < n_out; ++n)
      for (size_t k = 0; k < n_in; ++k) y[r * n_out + n] += x[r * n_in + k] * w[(e * n_out + n) * n_in + k];
  });
  store(call.out[0], y);
}

void backward_input(const OpCall& call) {
  const Array w = load(call.in[1]), d_y = load(call.d_out[0]);
  const auto n_out = static_cast<size_t>(call.in[1].dim(1)), n_in = static_cast<size_t>(call.in[1].dim(2));
  Array d_x(static_cast<size_t>(call.d_out[0].dim(0)) * n_in);
  for_rows(load_ints(call.in[2]), [&](size_t e, size_t r) {
    for (size_t n = 0; n < n_out; ++n)
      for (size_t k = 0; k < n_in; ++k)
        d_x[r * n_in + k] += d_y[r * n_out + n] * w[(e * n_out + n) * n_in + k];
  });
  store(call.d_in[0], d_x);
}

void backward_weight(const OpCall& call) {
  const Array x = load(call.in[0]), d_y = load(call.d_out[0]);
  const Tensor& weight = call.d_in[1].tensor;
  const auto n_out = static_cast<size_t>(weight.dim(1)), n_in = static_cast<size_t>(weight.dim(2));
  Array d_w(static_cast<size_t>(weight.numel()));
  for_rows(load_ints(call.in[2]), [&](size_t e, size_t r) {
    for (size_t n = 0; n < n_out; ++n)
      for (size_t k = 0; k < n_in; ++k)
        d_w[(e * n_out + n) * n_in + k] += d_y[r * n_out + n] * x[r * n_in + k];
  });
  store(call.d_in[1], d_w);
}

}  // namespace

Kernel grouped_linear_reference() {
  return {"reference", accept, forward, backward_input, backward_weight};
}

}  // namespace ingot
