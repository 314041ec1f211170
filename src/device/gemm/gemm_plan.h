// The tasks of one phase of a matrix product: blocks of A, cut into rows x columns of C, and the threads they
// are dealt to. Used by gemm.cpp; not thread-safe.
#pragma once
#include <cstdint>
#include <vector>

#include "base/work_ranges.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_problem.h"

namespace ingot {

/// Rows row0 .. of A and k-steps k0 .. k1: mc x k, whose packed A fits the phase's budget; or all of A, in
/// place.
struct GemmBlock {
  static constexpr int64_t kInPlace = -1;
  const GemmProblem* problem;
  int64_t row0, rows, k0, k1, kc;
  int64_t a_offset;  ///< words into packed A, or kInPlace

  int64_t steps() const { return k1 > k0 ? k1 - k0 : 1; }
};

/// Rows row .. of a block x columns col0 .. of C.
struct GemmTaskRange {
  const GemmBlock* block;
  int64_t col0, cols, row, rows;

  int64_t work() const { return rows * cols * block->steps(); }
};

inline constexpr int64_t kInlineWork = 1 << 16;  // multiply-adds below which threads do not pay

struct GemmPlan {
  std::vector<GemmProblem> problems;
  std::vector<GemmBlock> blocks;
  std::vector<GemmTaskRange> tasks;  ///< first those of the first micro-panel, which pack A, then the others
  int64_t packing_tasks = 0;         ///< how many of the first
  std::vector<int64_t> ranges;       ///< first packing task of each thread; first other task of each; the end
  std::vector<GemmTaskRange> undealt;
  WorkRanges queue;
};

/// Plans tasks and ranges for the blocks. `work`: multiply-adds of all blocks.
void plan_tasks(GemmPlan& plan, const GemmTileShape& tile, int64_t work);

}  // namespace ingot
