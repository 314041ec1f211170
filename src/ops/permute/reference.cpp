// permute and unpermute in plain loops; see permute.h.
#include "ops/reference.h"

#include "ops/permute/permute.h"

namespace ingot {
namespace {

using namespace reference;

void forward(const OpCall& call) {
  const Tensor& ids = call.in[2];
  const auto k = static_cast<size_t>(ids.dim(1)), slots = static_cast<size_t>(ids.numel()),
             width = static_cast<size_t>(call.in[0].dim(1)), count = static_cast<size_t>(call.out[1].numel());
  build_row_map(call);
  const Array x = load(call.in[0]), probs = load(call.in[1]);
  const auto row = load_ints(call.out[4]);
  Array rows(count * width), p(count);
  for (size_t s = 0; s < slots; ++s) {
    if (row[s] < 0) continue;
    const auto r = static_cast<size_t>(row[s]);
    p[r] = probs[s];
    for (size_t d = 0; d < width; ++d) rows[r * width + d] = x[s / k * width + d];
  }
  store(call.out[0], rows);
  store(call.out[1], p);
}

void backward_input(const OpCall& call) {
  const Array d_rows = load(call.d_out[0]), d_p = load(call.d_out[1]);
  const auto row = load_ints(call.out[4]);
  const auto k = static_cast<size_t>(call.out[4].dim(1));
  const size_t width = d_rows.empty() ? 0 : static_cast<size_t>(call.d_out[0].dim(1));
  const size_t x_width = call.d_in[0].wanted() ? static_cast<size_t>(call.d_in[0].tensor.dim(1)) : width;
  Array d_x(row.size() / k * x_width), d_probs(row.size());
  for (size_t s = 0; s < row.size(); ++s) {
    if (row[s] < 0) continue;
    const auto r = static_cast<size_t>(row[s]);
    if (!d_p.empty()) d_probs[s] = d_p[r];
    for (size_t d = 0; d < width; ++d) d_x[s / k * width + d] += d_rows[r * width + d];
  }
  store(call.d_in[0], d_x);
  store(call.d_in[1], d_probs);
}

void forward_back(const OpCall& call) {
  const Array rows = load(call.in[0]);
  const auto row = load_ints(call.in[1]);
  const auto k = static_cast<size_t>(call.in[1].dim(1)), width = static_cast<size_t>(call.in[0].dim(1));
  Array y(row.size() / k * width);
  for (size_t s = 0; s < row.size(); ++s)
    for (size_t d = 0; d < width && row[s] >= 0; ++d)
      y[s / k * width + d] += rows[static_cast<size_t>(row[s]) * width + d];
  store(call.out[0], y);
}

void backward_back(const OpCall& call) {
  const Array d_y = load(call.d_out[0]);
  const auto token = load_ints(call.in[2]);
  const auto width = static_cast<size_t>(call.d_out[0].dim(1));
  Array d_rows(token.size() * width);
  for (size_t r = 0; r < token.size(); ++r)
    for (size_t d = 0; d < width && token[r] >= 0; ++d)
      d_rows[r * width + d] = d_y[static_cast<size_t>(token[r]) * width + d];
  store(call.d_in[0], d_rows);
}

}  // namespace

Kernel permute_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}
Kernel unpermute_reference() {
  return {"reference", accept, forward_back, backward_back, nullptr};
}

}  // namespace ingot
