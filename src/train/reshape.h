// A checkpoint as a run on other ranks would have written it, made offline: each rank's pieces in files of its own, so that
// on loading none reads what others hold. (Any layout loads any checkpoint without this.)
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

/// Reads the checkpoint `from` (a checkpoint, or a folder of them: then the newest) and writes it below the folder `to` for
/// `ranks` ranks. Values keep their types and bits; states are copied, with `parallel` in the recipe. Memory: one file's worth
/// at a time for each rank, 4 GiB in all at most. Throws Error where the layout does not fit the model, and as reader and writer do.
ReshapeReport reshape_checkpoint(FileSystem& fs, const std::string& from, const std::string& to, int ranks,
                                 const ParallelConfig& parallel);

}  // namespace ingot
