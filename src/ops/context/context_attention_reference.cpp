// context_attention in plain loops, in double whatever the types; what is sent has the types of the fast
// kernel.
#include <algorithm>
#include <cmath>

#include "ops/common.h"
#include "ops/context/block_pass.h"
#include "ops/reference.h"

namespace ingot {
namespace {

using namespace reference;

struct Problem {
  explicit Problem(const OpCall& call)
      : attr(call.attr<ContextAttentionAttr>()),
        a(attr.attention),
        c(*attr.context.rows),
        pass(ContextMemory(call.scratch).pass(attr, call.in[0].dtype(), !call.d_in.empty())),
        qkv(load(call.in[0])) {
    pack_keys(a, call.in[0], pass.own);
  }
  const ContextAttentionAttr& attr;
  const AttentionAttr& a;
  const ContextRows& c;
  BlockPass pass;
  Array qkv;

  const double* q(int64_t row, int64_t h) const {
    return qkv.data() + row * a.packed_width() + h * a.head_width;
  }
  int64_t k_at(int64_t row, int64_t h) const { return row * kv_width(a) + group(h) * a.head_width; }
  int64_t v_at(int64_t row, int64_t h) const {
    return row * kv_width(a) + a.kv_heads * a.head_width + group(h) * a.values();
  }
  int64_t group(int64_t h) const { return h / (a.heads / a.kv_heads); }
  /// Capped score of a query and the row of a block.
  double score(const double* query, const double* block, int64_t row, int64_t h) const {
    double z = 0;
    for (int64_t i = 0; i < a.head_width; ++i) z += query[i] * block[k_at(row, h) + i];
    z *= a.score_scale();
    return a.softcap > 0 ? a.softcap * std::tanh(z / a.softcap) : z;
  }
  /// f(local row, row of the block) for every pair of a query here and a key of rank `from` that it sees.
  template <class F>
  void each_pair(int from, const F& f) const {
    for (const ContextPiece& q : c.pieces(c.rank()))
      for (const ContextPiece& k : c.pieces(from)) {
        if (q.document != k.document) continue;
        const AttentionWindow window{a.window, a.window_block, q.phase};
        for (int64_t t = 0; t < q.rows; ++t) {
          const int64_t position = q.first + t, first = std::max(window.first(position), k.first);
          for (int64_t j = first; j <= std::min(position, k.first + k.rows - 1); ++j)
            f(q.row + t, k.row + j - k.first);
        }
      }
  }
};

void forward(const OpCall& call) {
  const Problem p(call);
  const AttentionAttr& a = p.a;
  const int64_t rows = p.c.count(), V = a.values();
  Array o(static_cast<size_t>(rows * a.heads * V)), top(static_cast<size_t>(rows * a.heads), -INFINITY),
      sum(top.size());
  p.pass.run([&](int from, const Tensor& block_tensor, const Tensor&) {
    const Array values = load(block_tensor);
    const double* block = values.data();
    for (int64_t h = 0; h < a.heads; ++h)
      p.each_pair(from, [&](int64_t row, int64_t key) {
        const double z = p.score(p.q(row, h), block, key, h);
        const auto i = static_cast<size_t>(row * a.heads + h);
        double* out = o.data() + static_cast<int64_t>(i) * V;
        if (z > top[i]) {
          const double shrink = std::exp(top[i] - z);
          for (int64_t d = 0; d < V; ++d) out[d] *= shrink;
          sum[i] *= shrink;
          top[i] = z;
        }
        const double weight = std::exp(z - top[i]);
        sum[i] += weight;
        for (int64_t d = 0; d < V; ++d) out[d] += weight * block[p.v_at(key, h) + d];
      });
  });
  Array lse(top.size()), max_logit(static_cast<size_t>(a.heads), rows > 0 ? -INFINITY : 0.0);
  for (size_t i = 0; i < top.size(); ++i) {
    lse[i] = top[i] + std::log(sum[i]);
    double& most = max_logit[i % static_cast<size_t>(a.heads)];
    most = std::max(most, top[i]);
    for (int64_t d = 0; d < V; ++d) o[i * static_cast<size_t>(V) + static_cast<size_t>(d)] /= sum[i];
  }
  store(call.out[0], o);
  store(call.out[1], lse);
  store(call.out[2], max_logit);
}

void backward(const OpCall& call) {
  const Problem p(call);
  const AttentionAttr& a = p.a;
  const int64_t rows = p.c.count(), V = a.values(), W = a.packed_width();
  const Array o = load(call.out[0]), lse = load(call.out[1]), d_o = load(call.d_out[0]);
  INGOT_CHECK(d_o.size() == o.size(), "no cotangent");
  Array d_qkv(p.qkv.size()), delta(lse.size());
  for (size_t i = 0; i < delta.size(); ++i)
    for (size_t d = 0; d < static_cast<size_t>(V); ++d)
      delta[i] += o[i * static_cast<size_t>(V) + d] * d_o[i * static_cast<size_t>(V) + d];
  p.pass.run([&](int from, const Tensor& block_tensor, const Tensor& d_block_tensor) {
    const Array values = load(block_tensor);
    Array d_values(values.size());
    const double* block = values.data();
    double* d_block = d_values.data();
    for (int64_t h = 0; h < a.heads; ++h)
      p.each_pair(from, [&](int64_t row, int64_t key) {
        const double* q = p.q(row, h);
        const double z = p.score(q, block, key, h);
        const auto i = static_cast<size_t>(row * a.heads + h);
        const double* d_out = d_o.data() + static_cast<int64_t>(i) * V;
        const double prob = std::exp(z - lse[i]);
        double d_p = 0;
        for (int64_t d = 0; d < V; ++d) {
          d_p += d_out[d] * block[p.v_at(key, h) + d];
          d_block[p.v_at(key, h) + d] += prob * d_out[d];
        }
        double d_z = prob * (d_p - delta[i]) * a.score_scale();
        if (a.softcap > 0) d_z *= 1 - z / a.softcap * (z / a.softcap);
        double* d_q = d_qkv.data() + row * W + h * a.head_width;
        for (int64_t d = 0; d < a.head_width; ++d) {
          d_q[d] += d_z * block[p.k_at(key, h) + d];
          d_block[p.k_at(key, h) + d] += d_z * q[d];
        }
      });
    store(d_block_tensor, d_values);
  });
  const Array d_kv = load(p.pass.d_own);
  const int64_t width = kv_width(a);
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(d_kv.begin() + r * width, width, d_qkv.begin() + r * W + a.heads * a.head_width);
  store(call.d_in[0], d_qkv);
}

}  // namespace

Kernel context_attention_reference() {
  return {"reference", accept, forward, backward, nullptr};
}

}  // namespace ingot
