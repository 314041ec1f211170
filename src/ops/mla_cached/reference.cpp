// mla_cached in plain loops; see mla_cached.h for the two ways. Both are written out, so that their equality
// is a test.
#include "ops/reference.h"

#include <algorithm>
#include <cmath>

#include "ops/mla_cached/mla_cached.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {
namespace {

using namespace mla_cached_slot;
using namespace reference;

/// The cached rows [c ; k_rope] of all tokens of a span, this call's included.
Array load_cache(const MlaCachedAttr& a, const SequenceSpan& span) {
  Array all;
  const int64_t width = a.rank + a.rope, tokens = span.past + span.rows, page = SequenceState::kPageTokens;
  for (int64_t first = 0; first < tokens; first += page) {
    void* data = const_cast<void*>(span.state->keys(a.layer, first / page));
    const Array rows =
        load(Tensor(data, {std::min(page, tokens - first), width}, span.state->layout().dtype));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

void append(const MlaCachedAttr& a, const SequenceSpan& span, const OpCall& call) {
  const Array c = load(call.in[kC]), k_rope = load(call.in[kKRope]);
  Array rows;
  for (int64_t t = span.row_begin; t < span.row_begin + span.rows; ++t) {
    rows.insert(rows.end(), c.begin() + t * a.rank, c.begin() + (t + 1) * a.rank);
    rows.insert(rows.end(), k_rope.begin() + t * a.rope, k_rope.begin() + (t + 1) * a.rope);
  }
  const DType type = call.in[kC].dtype();
  std::vector<std::byte> memory(rows.size() * static_cast<size_t>(size_of(type)));
  const Tensor packed(memory.data(), {span.rows, a.rank + a.rope}, type);
  store(packed, rows);
  span.state->append_kv(a.layer, span.past, packed);
}

double dot(const double* x, const double* y, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += x[i] * y[i];
  return sum;
}

/// Rounded to the type that the products of training have.
double rounded(double x, DType type) {
  return type == DType::bf16  ? to_float(to_bf16(static_cast<float>(x)))
         : type == DType::f32 ? static_cast<float>(x)
                              : x;
}

/// Keys [n, key width] and values [n, value width] that one query head sees, and how its output comes from
/// their mean.
struct HeadView {
  Array keys, values;
  int64_t key_width, value_width;
};

HeadView view_of(const MlaCachedAttr& a, const Array& cache, const double* up, DType type) {
  HeadView v{{}, {}, a.absorb ? a.rank + a.rope : a.nope + a.rope, a.absorb ? a.rank : a.value};
  const int64_t width = a.rank + a.rope;
  for (const double* row = cache.data(); row != cache.data() + cache.size(); row += width) {
    if (a.absorb) {
      v.keys.insert(v.keys.end(), row, row + width);
      v.values.insert(v.values.end(), row, row + a.rank);
      continue;
    }
    for (int64_t i = 0; i < a.nope; ++i) v.keys.push_back(rounded(dot(row, up + i * a.rank, a.rank), type));
    v.keys.insert(v.keys.end(), row + a.rank, row + width);
    for (int64_t i = a.nope; i < a.nope + a.value; ++i)
      v.values.push_back(rounded(dot(row, up + i * a.rank, a.rank), type));
  }
  return v;
}

/// U^T q_nope in place of q_nope.
Array query_of(const MlaCachedAttr& a, const double* q, const double* up) {
  if (!a.absorb) return Array(q, q + a.nope + a.rope);
  Array absorbed(static_cast<size_t>(a.rank));
  for (int64_t i = 0; i < a.nope; ++i)
    for (int64_t j = 0; j < a.rank; ++j) absorbed[static_cast<size_t>(j)] += q[i] * up[i * a.rank + j];
  absorbed.insert(absorbed.end(), q + a.nope, q + a.nope + a.rope);
  return absorbed;
}

void head_forward(const MlaCachedAttr& a, const SequenceSpan& span, const HeadView& view, const double* up,
                  int64_t h, const Array& q, Array& o, double& top) {
  for (int64_t t = 0; t < span.rows; ++t) {
    const int64_t last = span.past + t, first = a.first_key(last), row = (span.row_begin + t) * a.heads + h;
    const Array query = query_of(a, q.data() + row * (a.nope + a.rope), up);
    Array z;
    for (int64_t j = first; j <= last; ++j) {
      const double score = a.scale * dot(query.data(), view.keys.data() + j * view.key_width, view.key_width);
      z.push_back(a.softcap > 0 ? a.softcap * std::tanh(score / a.softcap) : score);
    }
    const double largest = *std::max_element(z.begin(), z.end());
    top = std::max(top, largest);
    double sum = 0;
    for (const double x : z) sum += std::exp(x - largest);
    Array mean(static_cast<size_t>(view.value_width));
    for (int64_t j = first; j <= last; ++j) {
      const double p = std::exp(z[static_cast<size_t>(j - first)] - largest) / sum;
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] += p * view.values[static_cast<size_t>(j) * mean.size() + i];
    }
    for (int64_t i = 0; i < a.value; ++i)
      o[static_cast<size_t>(row * a.value + i)] =
          a.absorb ? dot(mean.data(), up + (a.nope + i) * a.rank, a.rank) : mean[static_cast<size_t>(i)];
  }
}

void forward(const OpCall& call) {
  const auto& a = call.attr<MlaCachedAttr>();
  const Array q = load(call.in[kQ]), up = load(call.in[kKvUp]);
  Array o(static_cast<size_t>(call.out[0].numel()));
  Array max_logit(static_cast<size_t>(a.heads), call.in[kQ].dim(0) > 0 ? -INFINITY : 0.0);
  SequenceSpan whole;
  for (const SequenceSpan& span : spans_of(a.rows, call.in[kQ].dim(0), whole)) {
    append(a, span, call);
    const Array cache = load_cache(a, span);
    for (int64_t h = 0; h < a.heads; ++h) {
      const double* w = up.data() + h * (a.nope + a.value) * a.rank;
      head_forward(a, span, view_of(a, cache, w, call.in[kC].dtype()), w, h, q, o,
                   max_logit[static_cast<size_t>(h)]);
    }
  }
  store(call.out[0], o);
  store(call.out[1], max_logit);
}

}  // namespace

Kernel mla_cached_reference() {
  return {"reference", accept, forward, nullptr, nullptr};
}

}  // namespace ingot
