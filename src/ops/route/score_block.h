// Blocks of kLanes rows of router scores, for kernel files: rows lie in the lanes of a vector, so each class
// is one vector and every step of a row (softmax, top-k, sums over classes by the 16 virtual lanes and the
// tree of reduce.h) is elementwise over the block. A row's bits depend neither on its neighbours nor on the
// vector's length.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "device/simd/transpose.h"
#include "device/simd/vmath.h"
#include "ops/route/isa_route.h"
#include "ops/route/keys.h"

namespace ingot::INGOT_ISA {

/// One vector per class (or choice): [kMaxRouteClasses][kLanes].
struct Block {
  float x[kMaxRouteClasses * kLanes];
  INGOT_INLINE Vec operator[](int64_t c) const { return load(x + c * kLanes); }
  INGOT_INLINE void set(int64_t c, Vec v) { store(x + c * kLanes, v); }
  INGOT_INLINE float at(int64_t c, int lane) const { return x[c * kLanes + lane]; }
};

/// The rows of n classes at `from`; lanes without a row are 0.
INGOT_INLINE void load_transposed(Block& to, const float* from, int rows, int64_t n) {
  each_vector(n, [&](int64_t c, int count) {
    Vec r[kLanes];
    for (int i = 0; i < kLanes; ++i) r[i] = i < rows ? load_n(from + i * n + c, count) : zero();
    transpose(r);
    for (int j = 0; j < count; ++j) to.set(c + j, r[j]);
  });
}

/// f(row, first class, values, how many): the block by rows again, rows ascending.
template <class F>
INGOT_INLINE void store_transposed(const Block& from, int rows, int64_t n, F&& f) {
  each_vector(n, [&](int64_t c, int count) {
    Vec r[kLanes];
    for (int j = 0; j < kLanes; ++j) r[j] = j < count ? from[c + j] : zero();
    transpose(r);
    for (int i = 0; i < rows; ++i) f(i, c, r[i], count);
  });
}

/// f(class, running value) -> new running value over the classes, then the tree: reduce.h's order.
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

/// s = sigmoid(l); returns their sum.
INGOT_INLINE Vec sigmoids(const Block& l, Block& s, int64_t n) {
  return fold_classes(n, [&](int64_t c, Vec acc) {
    const Vec v = vsigmoid(l[c]);
    s.set(c, v);
    return acc + v;
  });
}

struct Largest {
  VecI key, index;
};

/// The largest of n keys, ties to the lowest index. The one at `last` is struck out first (-1: none).
INGOT_INLINE Largest take_largest(Block& keys, int64_t n, VecI last) {
  Largest best{set1i(INT32_MIN), set1i(0)};
  for (int64_t e = 0; e < n; ++e) {
    const VecI here = set1i(static_cast<int32_t>(e));
    const VecI key = choice(equal(last, here), set1i(INT32_MIN), as_int(keys[e]));
    keys.set(e, as_float(key));
    const Mask more = key > best.key;
    best.key = choice(more, key, best.key);
    best.index = choice(more, here, best.index);
  }
  return best;
}

/// The k largest of n keys, ties to the lowest index, in ascending order of index; destroys the keys.
INGOT_INLINE void choose(Block& keys, int64_t n, int64_t k, Block& ids) {
  VecI last = set1i(-1);
  for (int64_t j = 0; j < k; ++j) {
    VecI index = last = take_largest(keys, n, last).index;
    for (int64_t place = j; place > 0; --place) {
      const VecI before = as_int(ids[place - 1]);
      const Mask after = before > index;
      ids.set(place, as_float(choice(after, before, index)));
      index = choice(after, index, before);
    }
    ids.set(0, as_float(index));
  }
}

/// Strikes out the keys of all groups but the `kept` best; a group counts by the sum of its `top` largest
/// scores.
INGOT_INLINE void limit_groups(Block& keys, int64_t n, int64_t groups, int64_t kept, int64_t top) {
  const int64_t size = n / groups;
  Block group_keys, left;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t e = 0; e < size; ++e) left.set(e, keys[g * size + e]);
    Vec sum = zero();
    VecI last = set1i(-1);
    for (int64_t j = 0; j < top; ++j) {
      const Largest best = take_largest(left, size, last);
      sum = sum + score_of(best.key);
      last = best.index;
    }
    group_keys.set(g, as_float(key_of(sum)));
  }
  choose(group_keys, groups, kept, left);
  for (int64_t g = 0; g < groups; ++g) {
    VecI stays = set1i(0);
    for (int64_t j = 0; j < kept; ++j)
      stays = choice(equal(as_int(left[j]), set1i(static_cast<int32_t>(g))), set1i(1), stays);
    for (int64_t e = g * size; e < (g + 1) * size; ++e)
      keys.set(e, as_float(choice(equal(stays, set1i(1)), as_int(keys[e]), set1i(INT32_MIN))));
  }
}

/// f(first row, how many) over begin .. end, kLanes at a time.
template <class F>
INGOT_INLINE void each_block(int64_t begin, int64_t end, F&& f) {
  for (int64_t t = begin; t < end; t += kLanes) f(t, end - t < kLanes ? static_cast<int>(end - t) : kLanes);
}

}  // namespace ingot::INGOT_ISA
