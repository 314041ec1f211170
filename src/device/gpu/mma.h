// Products of bf16 on tensor cores: 16 rows of A by kMmaColumns columns of B over 16 of k are the work of
// kMmaThreads threads beside each other, all of which come to add_product() together: mma.sync on CUDA (sm_80
// and later), MFMA on HIP (gfx90a and later). Sums are f32. An output follows from its own row, its own
// column and its sum, whatever stands beside it; the order in which an instruction adds its 16 products is
// the device's (the emulator's: emulated_mma.h). For *.cu.
//
// Operands lie in memory as pairs of bf16 along k, the even k in the lower half: those of a row of A, or of a
// column of B, beside each other, and the next row or column `stride` pairs after it.
#pragma once
#include "device/gpu/rt.h"

namespace ingot::INGOT_ISA {

constexpr int kMmaRows = 16, kMmaPairs = 8;  ///< of a product; pairs of k
#if defined(INGOT_ISA_hip)
constexpr int kMmaThreads = 64, kMmaColumns = 16;
#else
constexpr int kMmaThreads = 32, kMmaColumns = 8;
#endif

/// What a thread has of the sums; which they are say row_of_sum() and column_of_sum().
constexpr int kMmaSums = 4;
struct MmaSums {
  float x[kMmaSums];
};

INGOT_INLINE int mma_thread() {
  return static_cast<int>(thread_index()) % kMmaThreads;
}

#if defined(INGOT_ISA_hip)
struct MmaRows {
  uint32_t x[2];
};
struct MmaColumns {
  uint32_t x[2];
};
INGOT_INLINE MmaRows mma_rows(const uint32_t* pairs, int stride) {
  const uint32_t* const at = pairs + mma_thread() % 16 * stride + mma_thread() / 16 * 2;
  return {{at[0], at[1]}};
}
INGOT_INLINE MmaColumns mma_columns(const uint32_t* pairs, int stride) {
  const uint32_t* const at = pairs + mma_thread() % 16 * stride + mma_thread() / 16 * 2;
  return {{at[0], at[1]}};
}
INGOT_INLINE int row_of_sum(int i) {
  return mma_thread() / 16 * 4 + i;
}
INGOT_INLINE int column_of_sum(int) {
  return mma_thread() % 16;
}
INGOT_INLINE void add_product(MmaSums& sums, const MmaRows& a, const MmaColumns& b) {
  mma_16x16x16(sums.x, a.x, b.x);
}
#else
struct MmaRows {
  uint32_t x[4];
};
struct MmaColumns {
  uint32_t x[2];
};
INGOT_INLINE MmaRows mma_rows(const uint32_t* pairs, int stride) {
  const uint32_t* const at = pairs + mma_thread() / 4 * stride + mma_thread() % 4;
  return {{at[0], at[8 * stride], at[4], at[8 * stride + 4]}};
}
INGOT_INLINE MmaColumns mma_columns(const uint32_t* pairs, int stride) {
  const uint32_t* const at = pairs + mma_thread() / 4 * stride + mma_thread() % 4;
  return {{at[0], at[4]}};
}
INGOT_INLINE int row_of_sum(int i) {
  return mma_thread() / 4 + i / 2 * 8;
}
INGOT_INLINE int column_of_sum(int i) {
  return mma_thread() % 4 * 2 + i % 2;
}
INGOT_INLINE void add_product(MmaSums& sums, const MmaRows& a, const MmaColumns& b) {
  mma_16x8x16(sums.x, a.x, b.x);
}
#endif

}  // namespace ingot::INGOT_ISA
