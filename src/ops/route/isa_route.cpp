// route for a range of rows, compiled once per instruction set. Rows lie in the lanes of a vector: a block of
// kLanes rows is turned so that each class is one vector, and every step of a row (softmax, top-k, sums over
// classes by the 16 virtual lanes and the tree of reduce.h) is elementwise over the block. So a row's bits
// depend neither on its neighbours nor on the vector's length.
#include "device/cpu/loops.h"
#include "device/cpu/reduce.h"
#include "device/cpu/transpose.h"
#include "device/cpu/vmath.h"
#include "ops/route/row_kernels.h"

namespace ingot::INGOT_ISA {
namespace {

/// One vector per class (or choice): [kMaxRouteClasses][kLanes].
struct Block {
  float x[kMaxRouteClasses * kLanes];
  Vec operator[](int64_t c) const { return load(x + c * kLanes); }
  void set(int64_t c, Vec v) { store(x + c * kLanes, v); }
};

/// The rows of n classes at `from`; lanes without a row are 0.
INGOT_INLINE void turn_in(Block& to, const float* from, int rows, int64_t n) {
  each_vector(n, [&](int64_t c, int count) {
    Vec r[kLanes];
    for (int i = 0; i < kLanes; ++i) r[i] = i < rows ? load_n(from + i * n + c, count) : zero();
    transpose(r);
    for (int j = 0; j < count; ++j) to.set(c + j, r[j]);
  });
}

/// f(row, first class, values, how many): the block by rows again, rows ascending.
template <class F>
INGOT_INLINE void turn_out(const Block& from, int rows, int64_t n, F&& f) {
  each_vector(n, [&](int64_t c, int count) {
    Vec r[kLanes];
    for (int j = 0; j < kLanes; ++j) r[j] = j < count ? from[c + j] : zero();
    transpose(r);
    for (int i = 0; i < rows; ++i) f(i, c, r[i], count);
  });
}

/// Sum of f(class, running value) -> new running value over the classes, in reduce.h's order.
template <class F>
INGOT_INLINE Vec fold_classes(int64_t n, F&& f) {
  Vec acc[kVirtualLanes];
  for (Vec& a : acc) a = zero();
  for (int64_t c = 0; c < n; ++c) acc[c % kVirtualLanes] = f(c, acc[c % kVirtualLanes]);
  for (int step = kVirtualLanes / 2; step >= 1; step /= 2)
    for (int i = 0; i < step; ++i) acc[i] = acc[i] + acc[i + step];
  return acc[0];
}

/// p = softmax(l); returns log sum exp l.
INGOT_INLINE Vec softmax(const Block& l, Block& p, int64_t n) {
  Vec top = l[0];
  for (int64_t c = 1; c < n; ++c) top = max(top, l[c]);
  const Vec sum = fold_classes(n, [&](int64_t c, Vec acc) {
    const Vec e = vexp(l[c] - top);
    p.set(c, e);
    return acc + e;
  });
  for (int64_t c = 0; c < n; ++c) p.set(c, p[c] / sum);
  return top + vlog(sum);
}

/// -sum p log p over p > 0, by log p = l - lse.
INGOT_INLINE Vec entropy_of(const Block& l, const Block& p, Vec lse, int64_t n) {
  return fold_classes(
      n, [&](int64_t c, Vec acc) { return acc + select(p[c] > zero(), p[c] * (lse - l[c]), zero()); });
}

INGOT_INLINE VecI choice(Mask m, VecI a, VecI b) {
  return as_int(select(m, as_float(a), as_float(b)));
}

/// Integers in the order of the scores (both zeros equal), NaN below -inf; INT32_MIN is below all.
INGOT_INLINE VecI key_of(Vec score) {
  const VecI u = as_int(score + zero());
  const VecI ordered = u ^ (shift_right<31>(u) & set1i(INT32_MAX));
  return choice(is_nan(score), set1i(INT32_MIN + 1), ordered);
}

/// The k largest keys, ties to the lowest index, in ascending order; destroys the keys.
INGOT_INLINE void choose(Block& keys, int64_t experts, int64_t k, Block& ids) {
  VecI last = set1i(-1);
  for (int64_t j = 0; j < k; ++j) {
    VecI best = set1i(INT32_MIN), index = set1i(0);
    for (int64_t e = 0; e < experts; ++e) {
      const VecI here = set1i(static_cast<int32_t>(e));
      const VecI key = choice(equal(last, here), set1i(INT32_MIN), as_int(keys[e]));
      keys.set(e, as_float(key));
      const Mask more = key > best;
      best = choice(more, key, best);
      index = choice(more, here, index);
    }
    last = index;
    for (int64_t place = j; place > 0; --place) {
      const VecI before = as_int(ids[place - 1]);
      const Mask after = before > index;
      ids.set(place, as_float(choice(after, before, index)));
      index = choice(after, index, before);
    }
    ids.set(0, as_float(index));
  }
}

/// ids of the block, as rows.
INGOT_INLINE void select_experts(const RouteRows& a, int64_t t, int rows, Block& scores) {
  for (int64_t e = 0; e < a.experts; ++e) {
    const Vec score = a.bias != nullptr ? scores[e] + set1(a.bias[e]) : scores[e];
    scores.set(e, as_float(key_of(score)));
  }
  Block ids;
  choose(scores, a.experts, a.k, ids);
  for (int64_t j = 0; j < a.k; ++j) {
    int32_t of_rows[kLanes];
    std::memcpy(of_rows, ids.x + j * kLanes, sizeof(of_rows));
    for (int i = 0; i < rows; ++i) a.ids[(t + i) * a.k + j] = of_rows[i];
  }
}

INGOT_INLINE void forward_block(const RouteRows& a, int64_t t, int rows, const RouteSums& sums) {
  Block l, p;
  turn_in(l, a.logits + t * a.classes, rows, a.classes);
  const Vec lse = softmax(l, p, a.classes);
  float lse_of[kLanes], entropy[kLanes];
  store(lse_of, lse);
  store(entropy, entropy_of(l, p, lse, a.classes));
  for (int i = 0; i < rows; ++i) {
    *sums.square = __builtin_fmaf(lse_of[i], lse_of[i], *sums.square);
    *sums.entropy += entropy[i];
  }
  turn_out(p, rows, a.experts,
           [&](int, int64_t c, Vec v, int count) { put_n(sums.mass + c, v, count, true); });
  if (a.forced != nullptr) {
    for (int64_t j = t * a.k; j < (t + rows) * a.k; ++j) a.ids[j] = a.forced[j];
  } else {
    for (int64_t e = 0; e < a.experts && !a.logits_score; ++e) l.set(e, p[e]);
    select_experts(a, t, rows, l);
  }
  for (int i = 0; i < rows; ++i) {
    const int32_t* ids = a.ids + (t + i) * a.k;
    float chosen = 0;
    for (int64_t j = 0; j < a.k; ++j) chosen += p.x[ids[j] * kLanes + i];
    for (int64_t j = 0; j < a.k; ++j) {
      const float of = p.x[ids[j] * kLanes + i];
      a.probs[(t + i) * a.k + j] = a.scale * (a.divide ? of / chosen : of);
      sums.counts[ids[j]] += 1;
    }
  }
}

/// Adds to d_p what the chosen weights of lane i, row t, ask of the full softmax.
INGOT_INLINE void add_chosen(const RouteRows& a, int64_t t, int i, const Block& p, Block& d_p) {
  const float* d = a.d_probs + t * a.k;
  const int32_t* ids = a.ids + t * a.k;
  float chosen = 0, weighted = 0;
  for (int64_t j = 0; j < a.k; ++j) {
    const float of = p.x[ids[j] * kLanes + i];
    chosen += of;
    weighted = __builtin_fmaf(d[j], of, weighted);
  }
  // p_j = P_j / sum:  dP_j = (d_j - sum_i d_i P_i / sum) / sum
  for (int64_t j = 0; j < a.k; ++j)
    d_p.x[ids[j] * kLanes + i] += a.scale * (a.divide ? (d[j] - weighted / chosen) / chosen : d[j]);
}

INGOT_INLINE void backward_block(const RouteRows& a, int64_t t, int rows) {
  const int64_t n = a.classes;
  Block p, d_p;
  turn_in(d_p, a.logits + t * n, rows, n);
  const Vec lse = softmax(d_p, p, n);
  for (int64_t c = 0; c < n; ++c)
    d_p.set(c, a.d_mass != nullptr && c < a.experts ? set1(a.d_mass[c]) : zero());
  for (int i = 0; i < rows && a.d_probs != nullptr; ++i) add_chosen(a, t + i, i, p, d_p);
  const Vec dot = fold_classes(n, [&](int64_t c, Vec acc) { return fma(d_p[c], p[c], acc); });
  const Vec shift = set1(2 * a.d_square) * lse - dot;
  for (int64_t c = 0; c < n; ++c) d_p.set(c, p[c] * (d_p[c] + shift));
  turn_out(d_p, rows, n, [&](int i, int64_t c, Vec v, int count) {
    put_n(a.d_logits + (t + i) * n + c, v, count, a.accumulate);
  });
}

template <class F>
INGOT_INLINE void each_block(int64_t begin, int64_t end, F&& f) {
  for (int64_t t = begin; t < end; t += kLanes) f(t, end - t < kLanes ? static_cast<int>(end - t) : kLanes);
}

}  // namespace

void route_forward(const RouteRows& a, int64_t begin, int64_t end, const RouteSums& sums) {
  each_block(begin, end, [&](int64_t t, int rows) { forward_block(a, t, rows, sums); });
}

void route_backward(const RouteRows& a, int64_t begin, int64_t end) {
  each_block(begin, end, [&](int64_t t, int rows) { backward_block(a, t, rows); });
}

}  // namespace ingot::INGOT_ISA
