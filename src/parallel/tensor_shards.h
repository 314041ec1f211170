// How one tensor is divided among ranks, as those see it who move it.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace ingot {

/// Where the parts of one tensor lie that several ranks share out: rank r of the group has elements
/// [begins[r], begins[r + 1]).
struct TensorShards {
  Communicator* group = nullptr;
  std::vector<int64_t> begins;
};

/// Rows of a matrix.
struct RowRange {
  int64_t begin = 0, count = 0;
};

/// A matrix of which this rank's tensor is one of `group`'s equal slices, by rows (dim 0) or columns (dim 1) of every block.
struct MatrixCut {
  Communicator* group = nullptr;  ///< nullptr: not cut
  int dim = 0;
  /// Where slices do not follow the row blocks that are treated apart: the heights of those in the whole matrix, and by rank
  /// the rows of the whole that its slice has, in order. Else empty.
  std::vector<int64_t> blocks = {};
  std::vector<std::vector<RowRange>> rows = {};
};

}  // namespace ingot
