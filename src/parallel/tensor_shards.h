// How one tensor is sharded, as an optimizer sees it.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace ingot {

/// The element ranges of a tensor in a shard group: rank r has elements [begins[r], begins[r + 1]).
struct TensorShards {
  Communicator* group = nullptr;
  std::vector<int64_t> begins;
};

/// Rows of a matrix.
struct RowRange {
  int64_t begin = 0, count = 0;
};

/// A matrix that tensor-parallel ranks have in equal shards, by rows (dim 0) or columns (dim 1) of every
/// block.
struct MatrixSharding {
  Communicator* group = nullptr;  ///< nullptr: not sharded
  int dim = 0;
  /// Used where shards do not follow the row blocks that the optimizer treats apart, else empty: the heights
  /// of these blocks in the whole matrix, and for each rank the rows of the whole matrix that its shard has,
  /// in order.
  std::vector<int64_t> blocks = {};
  std::vector<std::vector<RowRange>> rows = {};
};

}  // namespace ingot
