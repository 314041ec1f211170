// attention in plain loops; see attention.h for the formulas.
#include "ops/reference.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/attention.h"
#include "ops/sequence/documents.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {
namespace {

using namespace reference;

/// One head of one span: where its queries, keys and values are.
struct Head {
  const AttentionAttr& a;
  const Array& qkv;   ///< the call's rows
  const Array& past;  ///< keys and values of the cached tokens, rows of G (K + V)
  const SequenceSpan& span;
  int64_t h;

  int64_t width() const { return a.packed_width(); }
  int64_t group() const { return h / (a.heads / a.kv_heads); }
  size_t q_at(int64_t t) const {
    return static_cast<size_t>((span.row_begin + t) * width() + h * a.head_width);
  }
  size_t k_at(int64_t j) const {
    return static_cast<size_t>((span.row_begin + j) * width() + (a.heads + group()) * a.head_width);
  }
  size_t v_at(int64_t j) const {
    return static_cast<size_t>((span.row_begin + j) * width() + (a.heads + a.kv_heads) * a.head_width +
                               group() * a.values());
  }
  /// Key (or value) of token j of the sequence; row j - past of the call.
  const double* key(int64_t j, bool value = false) const {
    if (j >= span.past) return qkv.data() + (value ? v_at(j - span.past) : k_at(j - span.past));
    const double* row = past.data() + j * a.kv_heads * (a.head_width + a.values());
    return row + (value ? a.kv_heads * a.head_width + group() * a.values() : group() * a.head_width);
  }
  static double dot(const double* x, const double* y, int64_t width) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += x[i] * y[i];
    return sum;
  }
  /// scale q_t . k_j
  double score(int64_t t, int64_t j) const {
    return a.score_scale() * dot(qkv.data() + q_at(t), key(j), a.head_width);
  }
  double cap(double z) const { return a.softcap > 0 ? a.softcap * std::tanh(z / a.softcap) : z; }
};

Array load_past(const AttentionAttr& a, const SequenceSpan& span) {
  Array past;
  const int64_t page_tokens = SequenceState::kPageTokens;
  for (int64_t j = 0; j < span.past; ++j)
    for (const bool value : {false, true}) {
      const void* page =
          value ? span.state->values(a.layer, j / page_tokens) : span.state->keys(a.layer, j / page_tokens);
      const int64_t width = value ? a.values() : a.head_width;
      const DType type = span.state->layout().dtype;
      const Array all = load(Tensor(const_cast<void*>(page), {a.kv_heads * page_tokens * width}, type));
      for (int64_t g = 0; g < a.kv_heads; ++g)
        for (int64_t i = 0; i < width; ++i) {
          const int64_t at = value ? j % page_tokens * width + i : i * page_tokens + j % page_tokens;
          past.push_back(all[static_cast<size_t>(g * page_tokens * width + at)]);
        }
    }
  return past;
}

void forward(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const Array qkv = load(call.in[0]);
  Array o(static_cast<size_t>(call.out[0].numel())), lse(static_cast<size_t>(call.out[1].numel()));
  Array max_logit(static_cast<size_t>(a.heads), call.in[0].dim(0) > 0 ? -INFINITY : 0.0);
  const CallSpans of_call(call, a.rows, kAttentionDocuments);
  for (const SequenceSpan& span : of_call.spans()) {
    const Array past = load_past(a, span);
    if (span.state != nullptr)
      span.state->append_kv(a.layer, span.past, call.in[0].slice(span.row_begin, span.row_begin + span.rows));
    for (int64_t h = 0; h < a.heads; ++h) {
      const Head head{a, qkv, past, span, h};
      for (int64_t t = 0; t < span.rows; ++t) {
        const int64_t last = span.past + t, first = a.window_in(span).first(last);
        Array z;
        for (int64_t j = first; j <= last; ++j) z.push_back(head.cap(head.score(t, j)));
        const double top = *std::max_element(z.begin(), z.end());
        max_logit[static_cast<size_t>(h)] = std::max(max_logit[static_cast<size_t>(h)], top);
        double sum = 0;
        for (const double x : z) sum += std::exp(x - top);
        const int64_t row = span.row_begin + t;
        lse[static_cast<size_t>(row * a.heads + h)] = top + std::log(sum);
        double* out = o.data() + (row * a.heads + h) * a.values();
        for (int64_t j = first; j <= last; ++j) {
          const double p = std::exp(z[static_cast<size_t>(j - first)] - top) / sum;
          for (int64_t i = 0; i < a.values(); ++i) out[i] += p * head.key(j, true)[i];
        }
      }
    }
  }
  store(call.out[0], o);
  store(call.out[1], lse);
  store(call.out[2], max_logit);
}

void backward(const OpCall& call) {
  const auto& a = call.attr<AttentionAttr>();
  const Array qkv = load(call.in[0]), o = load(call.out[0]), lse = load(call.out[1]),
              d_o = load(call.d_out[0]);
  const Array no_past;
  Array d_qkv(qkv.size());
  const CallSpans of_call(call, a.rows, kAttentionDocuments);
  for (const SequenceSpan& span : of_call.spans()) {
    INGOT_CHECK(span.state == nullptr, "attention has no backward through a cached sequence");
    for (int64_t h = 0; h < a.heads && !d_o.empty(); ++h) {
      const Head head{a, qkv, no_past, span, h};
      for (int64_t t = 0; t < span.rows; ++t) {
        const auto row = static_cast<size_t>((span.row_begin + t) * a.heads + h);
        const double* d_out = d_o.data() + row * static_cast<size_t>(a.values());
        const double delta = Head::dot(d_out, o.data() + row * static_cast<size_t>(a.values()), a.values());
        double* d_q = d_qkv.data() + head.q_at(t);
        for (int64_t j = a.window_in(span).first(t); j <= t; ++j) {
          const double z = head.cap(head.score(t, j));
          const double p = std::exp(z - lse[row]);
          double d_z = p * (Head::dot(d_out, head.key(j, true), a.values()) - delta) * a.score_scale();
          if (a.softcap > 0) d_z *= 1 - z / a.softcap * (z / a.softcap);
          double *d_k = d_qkv.data() + head.k_at(j), *d_v = d_qkv.data() + head.v_at(j);
          for (int64_t i = 0; i < a.head_width; ++i) {
            d_q[i] += d_z * head.key(j)[i];
            d_k[i] += d_z * qkv[head.q_at(t) + static_cast<size_t>(i)];
          }
          for (int64_t i = 0; i < a.values(); ++i) d_v[i] += p * d_out[i];
        }
      }
    }
  }
  store(call.d_in[0], d_qkv);
}

}  // namespace

Kernel attention_reference() {
  return {"reference", accept, forward, backward, nullptr};
}

}  // namespace ingot
