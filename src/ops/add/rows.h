// add's work on 16 columns or fewer of a row: the text of the kernels of every instruction set and of GPUs.
#pragma once
#include "device/simd/loops.h"
#include "ops/add/isa_add.h"

namespace ingot::INGOT_ISA {
namespace {

/// n elements of y from column i of the row that begins at element `row`.
template <class A, class B, class Y>
INGOT_INLINE void sum_n(const AddRows& p, const A* a, const B* b, Y* y, int64_t row, int64_t i, int n) {
  const Vec x = load_n(a + row + i, n), z = load_n(b + row + i, n);
  store_n(y + row + i, p.gate != nullptr ? fma(load_n(p.gate + i, n), z, x) : x + z, n);
}

/// The same of d_b.
template <class B, class Y>
INGOT_INLINE void gated_gradient_n(const AddRows& p, B* d_b, const Y* d_y, int64_t row, int64_t i, int n) {
  put_n(d_b + row + i, load_n(p.gate + i, n) * load_n(d_y + row + i, n), n, p.accumulate);
}

/// Adds a row's products, n elements from column i, to the sums of its chunk.
template <class B, class Y>
INGOT_INLINE Vec plus_products(const B* b, const Y* d_y, int64_t row, int64_t i, int n, Vec sums) {
  return fma(load_n(b + row + i, n), load_n(d_y + row + i, n), sums);
}

}  // namespace
}  // namespace ingot::INGOT_ISA
