// Products of 64 rows and 64 columns on a GPU, by blocks of 16 x 16 threads: four rows of four columns a
// thread. The columns are the lanes of a thread of simd_gpu.h, so that what the text of every instruction set
// does to a row is done where the outputs are. Operands come through shared memory, 16 channels at a time.
// For *.cu.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/row_kernels.h"

namespace ingot::INGOT_ISA {

constexpr int kTile = 64, kDepth = 16, kEach = 4, kTileThreads = kTile / kEach * (kTile / kEach);
constexpr int kTileStride = kTile + 4;  // neighbours' rows begin in other banks, at multiples of 16 bytes
static_assert(kDepth == kLanes && kTileThreads == kTile * kThreadsOfRow);

/// First of the thread's rows of a product, and the first column of its vector of 16 lanes.
INGOT_INLINE int first_row_of_thread() {
  return static_cast<int>(thread_index()) / (kTile / kEach) * kEach;
}
INGOT_INLINE int vector_of_thread() {
  return static_cast<int>(thread_index()) % (kTile / kEach) / kThreadsOfRow * kLanes;
}
/// The row of which the thread has a part of the lanes where a row is the work of four threads.
INGOT_INLINE int whole_row_of_thread() {
  return static_cast<int>(thread_index()) / kThreadsOfRow;
}

/// 16 channels of 64 rows, or 16 rows of 64 channels.
struct DepthTile {
  alignas(16) float x[kDepth][kTileStride];
};
/// to.x[c][row] = lane c of the vector of whole_row_of_thread().
INGOT_INLINE void put_turned(DepthTile& to, Vec x) {
  INGOT_UNROLL
  for (int k = 0; k < kLanesOfThread; ++k) to.x[first_lane() + k][whole_row_of_thread()] = x.v[k];
}

/// The thread's four columns of a row of a tile.
INGOT_INLINE Vec columns_of(const float* row) {
  Vec x;
  load4(row + vector_of_thread() + first_lane(), x.v);
  return x;
}
INGOT_INLINE void put_columns(float* row, Vec x) {
  store4(row + vector_of_thread() + first_lane(), x.v);
}

/// Four rows of four columns.
struct Outputs {
  Vec row[kEach];
};
INGOT_INLINE Outputs no_outputs() {
  return {{zero(), zero(), zero(), zero()}};
}

/// Adds channel by channel a.x[c][row] b.x[c][column].
INGOT_INLINE void add_channels(Outputs& sums, const DepthTile& a, const DepthTile& b, int depth) {
  const auto add = [&](int c) {
    float x[kEach];
    load4(&a.x[c][first_row_of_thread()], x);
    const Vec y = columns_of(b.x[c]);
    INGOT_UNROLL
    for (int r = 0; r < kEach; ++r) sums.row[r] = fma(set1(x[r]), y, sums.row[r]);
  };
  if (depth < kDepth) {
    for (int c = 0; c < depth; ++c) add(c);
    return;
  }
  INGOT_UNROLL
  for (int c = 0; c < kDepth; ++c) add(c);
}

}  // namespace ingot::INGOT_ISA
