// qk_prepare in plain loops; see qk_prepare.h for the formulas.
#include "ops/reference.h"

#include <cmath>

#include "ops/qk_prepare/qk_prepare.h"
#include "ops/sequence/rotary_reference.h"

namespace ingot {
namespace {

using namespace reference;

void forward(const OpCall& call) {
  const auto& a = call.attr<QkPrepareAttr>();
  const ReferenceRotation rotate(a.rotary);
  Array x = load(call.in[0]);
  const auto positions = load_ints(call.in[1]);
  const Array weights[] = {load(call.in[2]), load(call.in[3])};
  check_positions(positions.data(), call.in[0].dim(0));
  Array rstd;
  for (int64_t t = 0; t < call.in[0].dim(0); ++t)
    for (int64_t h = 0; h < a.heads + a.kv_heads; ++h) {
      double* head = x.data() + (t * (a.heads + 2 * a.kv_heads) + h) * a.head_width;
      if (a.norm) {
        const Array& w = weights[h >= a.heads];
        double square = 0;
        for (int64_t i = 0; i < a.head_width; ++i) square += head[i] * head[i];
        rstd.push_back(1 / std::sqrt(square / static_cast<double>(a.head_width) + a.eps));
        for (int64_t i = 0; i < a.head_width; ++i)
          head[i] *= rstd.back() * (w.empty() ? 1 : w[static_cast<size_t>(i)]);
      }
      rotate(positions[static_cast<size_t>(t)], head, 1);
    }
  store(call.out[0], x);
  store(call.out[1], rstd);
}

void backward(const OpCall& call) {
  const auto& a = call.attr<QkPrepareAttr>();
  const ReferenceRotation rotate(a.rotary);
  const Array x = load(call.in[0]), rstd = load(call.out[1]);
  const auto positions = load_ints(call.in[1]);
  const Array weights[] = {load(call.in[2]), load(call.in[3])};
  Array g = load(call.d_out[0]);
  Array d_weights[] = {Array(static_cast<size_t>(a.head_width)), Array(static_cast<size_t>(a.head_width))};
  const int64_t rows = call.in[1].dim(0), heads = a.heads + a.kv_heads;
  g.resize(static_cast<size_t>(rows * (heads + a.kv_heads) * a.head_width));
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t begin = (t * (a.heads + 2 * a.kv_heads) + h) * a.head_width;
      double* d = g.data() + begin;
      rotate(positions[static_cast<size_t>(t)], d, -1);
      if (!a.norm) continue;
      const Array& w = weights[h >= a.heads];
      const double r = rstd[static_cast<size_t>(t * heads + h)];
      double dot = 0;
      for (int64_t i = 0; i < a.head_width; ++i) {
        const double normed = x[static_cast<size_t>(begin + i)] * r;
        d_weights[h >= a.heads][static_cast<size_t>(i)] += d[i] * normed;
        d[i] *= w.empty() ? 1 : w[static_cast<size_t>(i)];
        dot += d[i] * normed;
      }
      for (int64_t i = 0; i < a.head_width; ++i)
        d[i] = r * (d[i] - x[static_cast<size_t>(begin + i)] * r * dot / static_cast<double>(a.head_width));
    }
  store(call.d_in[0], g);
  store(call.d_in[2], d_weights[0]);
  store(call.d_in[3], d_weights[1]);
}

}  // namespace

Kernel qk_prepare_reference() {
  return {"reference", accept, forward, backward, nullptr};
}

}  // namespace ingot
