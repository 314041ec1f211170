// See context_attention.h: the op and its reference kernel, which computes and communicates in double.
#include "ops/context/context_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/kernels.h"
#include "ops/collective/transfer.h"
#include "ops/reference.h"

namespace ingot {
namespace {

using reference::Array;
using reference::load;
using reference::store;

/// Keys and values of one rank's rows, [rows, G (K + V)].
int64_t kv_width(const AttentionAttr& a) { return a.kv_heads * (a.head_width + a.values()); }

Tensor tensor_of(Array& values) { return Tensor::of(values.data(), {static_cast<int64_t>(values.size())}); }

struct Problem {
  explicit Problem(const OpCall& call)
      : attr(call.attr<ContextAttentionAttr>()), a(attr.attention), c(*attr.context.rows), comm(group_of(attr.context.comm)),
        qkv(load(call.in[0])) {
    const size_t rows = static_cast<size_t>(c.count()), from = static_cast<size_t>(a.heads * a.head_width),
                 width = static_cast<size_t>(a.packed_width());
    for (size_t r = 0; r < rows; ++r) {
      const auto row = qkv.begin() + static_cast<int64_t>(r * width);
      kv.insert(kv.end(), row + static_cast<int64_t>(from), row + static_cast<int64_t>(width));
    }
  }
  const ContextAttentionAttr& attr;
  const AttentionAttr& a;
  const ContextRows& c;
  Communicator& comm;
  Array qkv, kv;

  const double* q(int64_t row, int64_t h) const { return qkv.data() + row * a.packed_width() + h * a.head_width; }
  int64_t k_at(int64_t row, int64_t h) const { return row * kv_width(a) + group(h) * a.head_width; }
  int64_t v_at(int64_t row, int64_t h) const { return row * kv_width(a) + a.kv_heads * a.head_width + group(h) * a.values(); }
  int64_t group(int64_t h) const { return h / (a.heads / a.kv_heads); }
  /// Capped score of a query and the row of a block.
  double score(const double* query, const double* block, int64_t row, int64_t h) const {
    double z = 0;
    for (int64_t i = 0; i < a.head_width; ++i) z += query[i] * block[k_at(row, h) + i];
    z *= attention_scale(a);
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
          for (int64_t j = first; j <= std::min(position, k.first + k.rows - 1); ++j) f(q.row + t, k.row + j - k.first);
        }
      }
  }
  /// visit(rank, its block) for the blocks of all ranks; with gradients the block's cotangents travel with it and visit() may
  /// add to them: d_kv then has this rank's.
  template <class Visit>
  void each_block(const Visit& visit, Array* d_kv) const {
    attr.ring ? pass_around(visit, d_kv) : gather(visit, d_kv);
  }

 private:
  template <class Visit>
  void gather(const Visit& visit, Array* d_kv) const {
    Array own = kv, all(kv.size() * static_cast<size_t>(c.ranks())), d_all(d_kv != nullptr ? all.size() : 0);
    comm.all_gather(tensor_of(own), tensor_of(all)).wait();
    for (int r = 0; r < c.ranks(); ++r) {
      const size_t at = static_cast<size_t>(r) * kv.size();
      visit(r, all.data() + at, d_kv != nullptr ? d_all.data() + at : nullptr);
    }
    if (d_kv != nullptr) comm.reduce_scatter(tensor_of(d_all), tensor_of(*d_kv)).wait();
  }
  template <class Visit>
  void pass_around(const Visit& visit, Array* d_kv) const {
    const int n = c.ranks(), next = (c.rank() + 1) % n, previous = (c.rank() + n - 1) % n;
    Array block = kv, d_block(d_kv != nullptr ? kv.size() : 0);
    const auto pass = [&](Array& values) {
      Array arriving(values.size());
      Pending sent = comm.send(tensor_of(values), next);
      comm.recv(tensor_of(arriving), previous).wait();
      sent.wait();
      values.swap(arriving);
    };
    for (int step = 0; step < n; ++step) {
      if (step > 0) pass(block);
      if (step > 0 && d_kv != nullptr) pass(d_block);
      visit((c.rank() + n - step) % n, block.data(), d_block.data());
    }
    if (d_kv == nullptr) return;
    pass(d_block);
    *d_kv = std::move(d_block);
  }
};

void forward(const OpCall& call) {
  const Problem p(call);
  const AttentionAttr& a = p.a;
  const int64_t rows = p.c.count(), V = a.values();
  Array o(static_cast<size_t>(rows * a.heads * V)), top(static_cast<size_t>(rows * a.heads), -INFINITY), sum(top.size());
  p.each_block(
      [&](int from, const double* block, double*) {
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
      },
      nullptr);
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
  Array d_qkv(p.qkv.size()), d_kv(p.kv.size()), delta(lse.size());
  for (size_t i = 0; i < delta.size(); ++i)
    for (size_t d = 0; d < static_cast<size_t>(V); ++d) delta[i] += o[i * static_cast<size_t>(V) + d] * d_o[i * static_cast<size_t>(V) + d];
  p.each_block(
      [&](int from, const double* block, double* d_block) {
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
            double d_z = prob * (d_p - delta[i]) * attention_scale(a);
            if (a.softcap > 0) d_z *= 1 - z / a.softcap * (z / a.softcap);
            double* d_q = d_qkv.data() + row * W + h * a.head_width;
            for (int64_t d = 0; d < a.head_width; ++d) {
              d_q[d] += d_z * block[p.k_at(key, h) + d];
              d_block[p.k_at(key, h) + d] += d_z * q[d];
            }
          });
      },
      &d_kv);
  const int64_t width = kv_width(a);
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(d_kv.begin() + r * width, width, d_qkv.begin() + r * W + a.heads * a.head_width);
  store(call.d_in[0], d_qkv);
}

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const AttentionAttr& a = attr.attention;
  const Tensor& qkv = call.in[0];
  INGOT_CHECK(qkv.shape() == (Shape{attr.context.rows->count(), a.packed_width()}) && a.heads % a.kv_heads == 0, "qkv is {}",
              qkv.meta.str());
  const DType statistic = qkv.dtype() == DType::f64 ? DType::f64 : DType::f32;
  out[0] = {Shape{qkv.dim(0), a.heads * a.values()}, qkv.dtype()};
  out[1] = {Shape{qkv.dim(0), a.heads}, statistic};
  out[2] = {Shape{a.heads}, statistic};
}

/// Pairs of the rank's queries and the keys that they see; wire: n - 1 blocks, and in backward as many with cotangents.
OpCost cost(const OpCall& call) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const AttentionAttr& a = attr.attention;
  double pairs = 0;
  for (const ContextPiece& p : attr.context.rows->pieces(attr.context.rows->rank()))
    for (int64_t t = p.first; t < p.first + p.rows; ++t)
      pairs += static_cast<double>(t - AttentionWindow{a.window, a.window_block, p.phase}.first(t) + 1);
  const double channel = 2 * pairs * static_cast<double>(a.heads);
  const double scores = channel * static_cast<double>(a.head_width), sums = channel * static_cast<double>(a.values());
  OpCost c{scores + sums, 3 * scores + 2 * sums, 0, tensor_bytes(call)};
  const double block = static_cast<double>(attr.context.rows->count() * kv_width(a)) * 8, others = attr.context.rows->ranks() - 1;
  c.wire_bytes[0] = others * block;
  c.wire_bytes[1] = (2 * others + (attr.ring ? 1 : 0)) * block;
  return c;
}

BackwardReads reads(const void*) { return {0b1, 0b11, 0, 0}; }

std::string print(const void* attr_data) {
  const auto& attr = *static_cast<const ContextAttentionAttr*>(attr_data);
  const AttentionAttr& a = attr.attention;
  return fmt::format("{} heads={}/{}x{}/{} scale={} window={} softcap={}", attr.ring ? "ring" : "gather", a.heads, a.kv_heads,
                     a.head_width, a.values(), attention_scale(a), a.window, a.softcap);
}

}  // namespace

const Op& context_attention_op() {
  static const Op op{"context_attention", {{"qkv"}}, {{"o"}, {"lse", false}, {"max_logit", false}},
                     reads,               infer,     cost,
                     nullptr,             print,     {{"reference", reference::accept, forward, backward, nullptr}}};
  return op;
}

AttentionResult context_attention(Tape& tape, const ContextAttentionAttr& attr, const Value& qkv_TW) {
  auto out = tape.apply(context_attention_op(), attr, {qkv_TW});
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

}  // namespace ingot
