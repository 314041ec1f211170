// Kernels of a GPU over rows, each the work of 4 threads (device/simd/simd_gpu.h); for *.cu.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kRowKernelThreads = 128;

/// The row that the thread works on with its neighbours; it may be beyond the last.
INGOT_INLINE int64_t row_of_thread() {
  return global_thread() / kThreadsOfRow;
}
inline GpuGrid grid_of_rows(int64_t rows) {
  return grid_of(rows * kThreadsOfRow, kRowKernelThreads);
}

/// The rows of a permutation that hold data: those before *end, or all.
struct LiveRowCount {
  int64_t capacity;
  const int32_t* end;  ///< on the device; nullptr: all rows
};
INGOT_INLINE bool is_live(const LiveRowCount& rows, int64_t row) {
  return row < (rows.end != nullptr ? int64_t{*rows.end} : rows.capacity);
}

}  // namespace ingot::INGOT_ISA
