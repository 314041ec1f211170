// mix in plain loops; see mix.h.
#include "ops/reference.h"

#include "ops/mix/mix.h"

namespace ingot {
namespace {

using namespace mix_slot;
using namespace reference;

double scalar(const Tensor& t, double otherwise) {
  return t.defined() ? load(t)[0] : otherwise;
}

/// f(element of a and y, element of b) for every mixed element.
template <class F>
void each_mixed(int64_t rows, int64_t width, int64_t first, F&& f) {
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = first; i < width; ++i)
      f(static_cast<size_t>(t * width + i), static_cast<size_t>(t * (width - first) + i - first));
}

void forward(const OpCall& call) {
  const Array a = load(call.in[kA]), b = load(call.in[kB]);
  const double alpha = scalar(call.in[kAlpha], call.attr<MixAttr>().factor), beta = scalar(call.in[kBeta], 1);
  Array y(a);
  each_mixed(call.in[kA].dim(0), call.in[kA].dim(1), call.attr<MixAttr>().first,
             [&](size_t i, size_t j) { y[i] = alpha * a[i] + (b.empty() ? 0 : beta * b[j]); });
  store(call.out[0], y);
}

void backward_input(const OpCall& call) {
  const Array a = load(call.in[kA]), b = load(call.in[kB]), d_y = load(call.d_out[0]);
  const double alpha = scalar(call.in[kAlpha], call.attr<MixAttr>().factor), beta = scalar(call.in[kBeta], 1);
  const int64_t rows = call.d_out[0].dim(0), width = call.d_out[0].dim(1), first = call.attr<MixAttr>().first;
  Array d_a(d_y), d_b(static_cast<size_t>(rows * (width - first)));
  double d_alpha = 0, d_beta = 0;
  each_mixed(rows, width, first, [&](size_t i, size_t j) {
    d_a[i] = alpha * d_y[i];
    d_b[j] = beta * d_y[i];
    if (!a.empty()) d_alpha += a[i] * d_y[i];
    if (!b.empty()) d_beta += b[j] * d_y[i];
  });
  store(call.d_in[kA], d_a);
  store(call.d_in[kB], d_b);
  store(call.d_in[kAlpha], {d_alpha});
  store(call.d_in[kBeta], {d_beta});
}

}  // namespace

Kernel mix_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}

}  // namespace ingot
