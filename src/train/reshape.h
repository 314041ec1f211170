// Rewrites a checkpoint as a run on other ranks would have written it: each rank's pieces in files of its
// own, so that no rank reads at load what others hold. (Every layout loads every checkpoint; this makes it
// faster.)
#pragma once
#include <string>

#include "base/file_system.h"
#include "train/recipe.h"

namespace ingot {

struct ReshapeReport {
  std::string path;  ///< of the new checkpoint
  std::string grid;  ///< of the ranks
  int64_t tensors = 0, pieces = 0, bytes = 0;
  int64_t largest_share = 0;  ///< bytes of the rank that holds most
};

/// Reads the checkpoint `from` (a checkpoint, or a folder of which it takes the newest) and writes it below
/// the folder `to` for `ranks` ranks. Values keep their types and bits; states are copied, with `parallel` in
/// the recipe. Needs the memory of one file for each rank, at most 4 GiB together. Throws Error where the
/// layout does not fit the model, and as reader and writer do.
ReshapeReport reshape_checkpoint(FileSystem& fs, const std::string& from, const std::string& to, int ranks,
                                 const ParallelConfig& parallel);

}  // namespace ingot
