// add in plain loops; see add.h.
#include "ops/reference.h"

#include "ops/add/add.h"

namespace ingot {
namespace {

using namespace reference;

void forward(const OpCall& call) {
  const Array a = load(call.in[0]), b = load(call.in[1]), gate = load(call.in[2]);
  const auto width = static_cast<size_t>(call.in[0].dim(1));
  Array y(a.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = a[i] + (gate.empty() ? 1 : gate[i % width]) * b[i];
  store(call.out[0], y);
}

void backward_input(const OpCall& call) {
  const Array b = load(call.in[1]), gate = load(call.in[2]), d_y = load(call.d_out[0]);
  const auto width = static_cast<size_t>(call.d_out[0].dim(1));
  Array d_b(d_y), d_gate(gate.size());
  for (size_t i = 0; i < d_y.size() && !gate.empty(); ++i) {
    d_b[i] = gate[i % width] * d_y[i];
    d_gate[i % width] += b[i] * d_y[i];
  }
  store(call.d_in[0], d_y);
  store(call.d_in[1], d_b);
  store(call.d_in[2], d_gate);
}

}  // namespace

Kernel add_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}

}  // namespace ingot
