// A row's softmax on a GPU, four threads a row, whose 16 lanes are the virtual lanes in which score_block.h
// adds over classes. For *.cu of route and assign.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "device/simd/vmath.h"

namespace ingot::INGOT_ISA {

/// f(first class, how many, running value) -> new running value over the classes, then the tree of reduce.h.
template <class F>
INGOT_INLINE float fold_row(int64_t n, F&& f) {
  Lanes acc = lanes(0.0f);
  each_vector(n,
              [&](int64_t c, int count) { acc.v[0] = first_lanes(count, f(c, count, acc.v[0]), acc.v[0]); });
  return tree_sum(acc);
}

struct Softmax {
  float top, sum;
};
INGOT_INLINE Softmax softmax_of(const float* l, int64_t n) {
  const float top = row_max(l, n);
  return {top, fold_row(n, [&](int64_t c, int count, Vec acc) {
            return acc + vexp(load_n(l + c, count) - set1(top));
          })};
}
INGOT_INLINE Vec probability(const Softmax& row, Vec l) {
  return vexp(l - set1(row.top)) / set1(row.sum);
}

}  // namespace ingot::INGOT_ISA
