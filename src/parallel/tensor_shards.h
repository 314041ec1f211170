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

/// A matrix of which this rank's tensor is one of `group`'s equal slices, by rows (dim 0) or columns (dim 1) of every block.
struct MatrixCut {
  Communicator* group = nullptr;  ///< nullptr: not cut
  int dim = 0;
};

}  // namespace ingot
