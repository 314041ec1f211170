// mla_latents and mla_pack in plain loops; see mla.h for the formulas.
#include "ops/reference.h"

#include <cmath>

#include "ops/mla/mla.h"
#include "ops/sequence/rotary_reference.h"

namespace ingot {
namespace {

using namespace reference;

namespace latents {
using namespace mla_latents_slot;

void forward(const OpCall& call) {
  const auto& a = call.attr<MlaLatentsAttr>();
  const ReferenceRotation rotate(a.rotary);
  const Array x = load(call.in[kDown]), weights[] = {load(call.in[kQWeight]), load(call.in[kKvWeight])};
  const auto positions = load_ints(call.in[kPositions]);
  check_positions(positions.data(), call.in[kDown].dim(0));
  Array y[3], rstd;
  const double* row = x.data();
  for (const int32_t position : positions) {
    for (const int part : {0, 1}) {
      const int64_t n = part == 0 ? a.q_rank : a.kv_rank;
      double square = 0;
      for (int64_t i = 0; i < n; ++i) square += row[i] * row[i];
      rstd.push_back(n > 0 ? 1 / std::sqrt(square / static_cast<double>(n) + a.eps) : 0);
      for (int64_t i = 0; i < n; ++i)
        y[part].push_back(row[i] * rstd.back() * weights[part][static_cast<size_t>(i)]);
      row += n;
    }
    Array shared(row, row + a.rope);
    rotate(position, shared.data(), 1);
    y[2].insert(y[2].end(), shared.begin(), shared.end());
    row += a.rope;
  }
  for (const size_t o : {0, 1, 2}) store(call.out[o], y[o]);
  store(call.out[kRstd], rstd);
}

void backward(const OpCall& call) {
  const auto& a = call.attr<MlaLatentsAttr>();
  const ReferenceRotation rotate(a.rotary);
  const Array x = load(call.in[kDown]), weights[] = {load(call.in[kQWeight]), load(call.in[kKvWeight])},
              rstd = load(call.out[kRstd]);
  const auto positions = load_ints(call.in[kPositions]);
  Array g[3], d_x, d_weights[] = {Array(weights[0].size()), Array(weights[1].size())};
  const int64_t widths[] = {a.q_rank, a.kv_rank, a.rope};
  for (const size_t o : {0, 1, 2}) {
    g[o] = load(call.d_out[o]);
    g[o].resize(positions.size() * static_cast<size_t>(widths[o]));
  }
  const double* row = x.data();
  for (size_t t = 0; t < positions.size(); ++t) {
    for (const size_t part : {0, 1}) {
      const int64_t n = widths[part];
      const double r = rstd[t * 2 + part];
      const double* d = g[part].data() + t * static_cast<size_t>(n);
      double dot = 0;
      for (int64_t i = 0; i < n; ++i) {
        d_weights[part][static_cast<size_t>(i)] += d[i] * row[i] * r;
        dot += d[i] * weights[part][static_cast<size_t>(i)] * row[i] * r;
      }
      for (int64_t i = 0; i < n; ++i)
        d_x.push_back(
            r * (d[i] * weights[part][static_cast<size_t>(i)] - row[i] * r * dot / static_cast<double>(n)));
      row += n;
    }
    double* d = g[2].data() + t * static_cast<size_t>(a.rope);
    rotate(positions[t], d, -1);
    d_x.insert(d_x.end(), d, d + a.rope);
    row += a.rope;
  }
  store(call.d_in[kDown], d_x);
  store(call.d_in[kQWeight], d_weights[0]);
  store(call.d_in[kKvWeight], d_weights[1]);
}
}  // namespace latents

namespace pack {
using namespace mla_pack_slot;

void forward(const OpCall& call) {
  const auto& a = call.attr<MlaPackAttr>();
  const ReferenceRotation rotate(a.rotary);
  const Array q = load(call.in[kQ]), kv = load(call.in[kKv]), k_rope = load(call.in[kKRope]);
  const auto positions = load_ints(call.in[kPositions]);
  check_positions(positions.data(), call.in[kQ].dim(0));
  const int64_t K = a.nope + a.rope, up = a.nope + a.value;
  Array y;
  for (size_t t = 0; t < positions.size(); ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const double* from = q.data() + (static_cast<int64_t>(t) * a.heads + h) * K;
      Array head(from, from + K);
      rotate(positions[t], head.data() + a.nope, 1);
      y.insert(y.end(), head.begin(), head.end());
    }
    if (kv.empty()) continue;
    const double* row = kv.data() + static_cast<int64_t>(t) * a.heads * up;
    const double* shared = k_rope.data() + static_cast<int64_t>(t) * a.rope;
    for (int64_t h = 0; h < a.heads; ++h) {
      y.insert(y.end(), row + h * up, row + h * up + a.nope);
      y.insert(y.end(), shared, shared + a.rope);
    }
    for (int64_t h = 0; h < a.heads; ++h) y.insert(y.end(), row + h * up + a.nope, row + (h + 1) * up);
  }
  store(call.out[0], y);
}

void backward(const OpCall& call) {
  const auto& a = call.attr<MlaPackAttr>();
  const ReferenceRotation rotate(a.rotary);
  const Array g = load(call.d_out[0]);
  const auto positions = load_ints(call.in[kPositions]);
  const int64_t K = a.nope + a.rope;
  const bool all = call.d_out[0].dim(1) > a.heads * K;
  Array d_q, d_kv, d_k_rope;
  const double* row = g.data();
  for (const int32_t position : positions) {
    for (int64_t h = 0; h < a.heads; ++h, row += K) {
      Array head(row, row + K);
      rotate(position, head.data() + a.nope, -1);
      d_q.insert(d_q.end(), head.begin(), head.end());
    }
    if (!all) continue;
    const double *keys = row, *values = row + a.heads * K;
    Array shared(static_cast<size_t>(a.rope));
    for (int64_t h = 0; h < a.heads; ++h) {
      d_kv.insert(d_kv.end(), keys + h * K, keys + h * K + a.nope);
      d_kv.insert(d_kv.end(), values + h * a.value, values + (h + 1) * a.value);
      for (int64_t i = 0; i < a.rope; ++i) shared[static_cast<size_t>(i)] += keys[h * K + a.nope + i];
    }
    d_k_rope.insert(d_k_rope.end(), shared.begin(), shared.end());
    row += a.heads * (K + a.value);
  }
  store(call.d_in[kQ], d_q);
  store(call.d_in[kKv], d_kv);
  store(call.d_in[kKRope], d_k_rope);
}
}  // namespace pack

}  // namespace

Kernel mla_latents_reference() {
  return {"reference", accept, latents::forward, latents::backward, nullptr};
}
Kernel mla_pack_reference() {
  return {"reference", accept, pack::forward, pack::backward, nullptr};
}

}  // namespace ingot
