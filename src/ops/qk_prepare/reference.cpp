// qk_prepare in plain loops; see qk_prepare.h for the formulas.
#include "ops/reference.h"

#include <cmath>

#include "ops/qk_prepare/qk_prepare.h"
#include "ops/sequence/rotary_reference.h"

namespace ingot {
namespace {

using namespace reference;

/// The vectors of a row that are normed: where each begins, its width, and whether it is of keys.
struct NormedVector {
  int64_t begin, width;
  bool key;
};

std::vector<NormedVector> normed_vectors(const QkPrepareAttr& a) {
  std::vector<NormedVector> all;
  for (int64_t i = 0; i < a.norms(); ++i) {
    const bool key = i >= (a.joint ? 1 : a.heads);
    all.push_back({a.joint ? i * a.heads * a.head_width : i * a.head_width, a.weight_width(key), key});
  }
  return all;
}

void forward(const OpCall& call) {
  const auto& a = call.attr<QkPrepareAttr>();
  const ReferenceRotation rotate(a.rotary);
  Array x = load(call.in[0]);
  const auto positions = load_ints(call.in[1]);
  const Array weights[] = {load(call.in[2]), load(call.in[3])};
  check_positions(positions.data(), call.in[0].dim(0));
  Array rstd;
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    double* row = x.data() + t * (a.heads + 2 * a.kv_heads) * a.head_width;
    for (const NormedVector& v : a.norm ? normed_vectors(a) : std::vector<NormedVector>()) {
      const Array& w = weights[v.key];
      double square = 0;
      for (int64_t i = 0; i < v.width; ++i) square += row[v.begin + i] * row[v.begin + i];
      rstd.push_back(1 / std::sqrt(square / static_cast<double>(v.width) + a.eps));
      for (int64_t i = 0; i < v.width; ++i)
        row[v.begin + i] *= rstd.back() * (w.empty() ? 1 : w[static_cast<size_t>(i)] + a.weight_offset);
    }
    for (int64_t h = 0; h < a.heads + a.kv_heads; ++h)
      rotate(positions[static_cast<size_t>(t)], row + h * a.head_width, 1);
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
  Array d_weights[] = {Array(static_cast<size_t>(a.weight_width(0))),
                       Array(static_cast<size_t>(a.weight_width(1)))};
  const int64_t rows = call.in[1].dim(0), width = (a.heads + 2 * a.kv_heads) * a.head_width;
  g.resize(static_cast<size_t>(rows * width));
  const std::vector<NormedVector> vectors = a.norm ? normed_vectors(a) : std::vector<NormedVector>();
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < a.heads + a.kv_heads; ++h)
      rotate(positions[static_cast<size_t>(t)], g.data() + t * width + h * a.head_width, -1);
    for (size_t n = 0; n < vectors.size(); ++n) {
      const NormedVector& v = vectors[n];
      const Array& w = weights[v.key];
      const double r = rstd[static_cast<size_t>(t) * vectors.size() + n];
      double* d = g.data() + t * width + v.begin;
      const double* in = x.data() + t * width + v.begin;
      double dot = 0;
      for (int64_t i = 0; i < v.width; ++i) {
        d_weights[v.key][static_cast<size_t>(i)] += d[i] * in[i] * r;
        d[i] *= w.empty() ? 1 : w[static_cast<size_t>(i)] + a.weight_offset;
        dot += d[i] * in[i] * r;
      }
      for (int64_t i = 0; i < v.width; ++i)
        d[i] = r * (d[i] - in[i] * r * dot / static_cast<double>(v.width));
    }
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
