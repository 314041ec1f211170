// Panels: products on tensor cores (mma.h) of 16 rows by 16 columns, whose sums lie as the next product wants
// its rows, so that what becomes of them (probabilities) never leaves the registers. Of each of its rows a
// thread has four columns. On HIP, where sums lie along columns, the transposed product is asked for. For
// *.cu.
#pragma once
#include "device/gpu/mma.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kPanel = 16;  ///< rows, columns, and k of a product

#if defined(INGOT_ISA_hip)
constexpr int kPanelRows = 1, kPanelParts = 1;       ///< rows of a thread; instructions of a product
constexpr unsigned kRowGroup = 64, kFirstMask = 16;  ///< of threads that share a row
INGOT_INLINE int row_of_panel(int) {
  return mma_thread() % 16;
}
/// Of the thread's four columns i.
INGOT_INLINE int column_of_panel(int i) {
  return mma_thread() / 16 * 4 + i;
}
/// Whether it is the one that writes what the threads of a row know.
INGOT_INLINE bool writes_row_of_panel() {
  return mma_thread() / 16 == 0;
}
#else
constexpr int kPanelRows = 2, kPanelParts = 2;
constexpr unsigned kRowGroup = 4, kFirstMask = 1;  ///< of threads that share a row
INGOT_INLINE int row_of_panel(int r) {
  return mma_thread() / 4 + 8 * r;
}
INGOT_INLINE int column_of_panel(int i) {
  return i / 2 * 8 + mma_thread() % 4 * 2 + i % 2;
}
INGOT_INLINE bool writes_row_of_panel() {
  return mma_thread() % 4 == 0;
}
#endif

struct Panel {
  MmaSums part[kPanelParts];

  /// The thread's columns of its row r.
  INGOT_INLINE Vec row(int r) const {
    return four_floats([&](int i) { return part[part_of(i)].x[place_of(r, i)]; });
  }
  INGOT_INLINE void set_row(int r, Vec x) {
    INGOT_UNROLL
    for (int i = 0; i < kLanesOfThread; ++i) part[part_of(i)].x[place_of(r, i)] = x.v[i];
  }

 private:
  static INGOT_INLINE int part_of(int i) { return i * kPanelParts / kLanesOfThread; }
  static INGOT_INLINE int place_of(int r, int i) { return kPanelParts == 1 ? i : r * 2 + i % 2; }
};

/// Combines, in one order for all of them, what the threads of a row have.
template <class F>
INGOT_INLINE float over_row_of_panel(float x, F&& combine) {
  INGOT_UNROLL
  for (unsigned i = 0; i < 2; ++i) x = combine(x, shuffle_xor<kRowGroup>(x, kFirstMask << i));
  return x;
}

/// The operand of the rows, from pairs of two columns of k each.
INGOT_INLINE MmaRows rows_of_pairs(const uint32_t (&pair)[kPanelRows][2]) {
#if defined(INGOT_ISA_hip)
  return {{pair[0][0], pair[0][1]}};
#else
  return {{pair[0][0], pair[1][0], pair[0][1], pair[1][1]}};
#endif
}
INGOT_INLINE uint32_t pair_of(float even, float odd) {
  return bf16_bits(even) | static_cast<uint32_t>(bf16_bits(odd)) << 16;
}
/// The panel's values, rounded to bf16, as rows.
INGOT_INLINE MmaRows rows_of_panel(const Panel& x) {
  uint32_t pair[kPanelRows][2];
  INGOT_UNROLL
  for (int r = 0; r < kPanelRows; ++r) {
    const Vec v = x.row(r);
    pair[r][0] = pair_of(v.v[0], v.v[1]), pair[r][1] = pair_of(v.v[2], v.v[3]);
  }
  return rows_of_pairs(pair);
}

/// Adds x times the 16 columns whose pairs of k begin at `pairs`, `stride` pairs after each other.
INGOT_INLINE void add_product(Panel& sum, const MmaRows& x, const uint32_t* pairs, int stride) {
#if defined(INGOT_ISA_hip)
  const MmaRows columns = mma_rows(pairs, stride);
  add_product(sum.part[0], columns, MmaColumns{{x.x[0], x.x[1]}});
#else
  INGOT_UNROLL
  for (int p = 0; p < kPanelParts; ++p)
    add_product(sum.part[p], x, mma_columns(pairs + p * kMmaColumns * stride, stride));
#endif
}

}  // namespace ingot::INGOT_ISA
