// Dumps of one step: every tensor that the tape makes, forward and backward, by its stable name and in
// execution order; and the comparison of two dumps, which names the first op that differs.
#pragma once
#include <string>

#include "base/file_system.h"
#include "train/recipe.h"

namespace ingot {

/// Writes what the next step of a run makes in its first micro-batch, as a safetensors file; metadata "order"
/// lists the names in execution order. The run starts or resumes as the trainer would, in one process
/// (without [parallel]), with the same first weights, frozen parameters, adapters, objective and memory
/// policy; it may resume under other kernels. The run folder is not changed. Error where the run is finished.
void dump_step(FileSystem& fs, const Recipe& recipe, const std::string& path);

struct DumpComparison {
  bool equal = false;
  std::string first;  ///< name of the first tensor that differs, in the left dump's order
  std::string text;   ///< for people
};

/// tolerance 0: bits must agree; else max |difference| / max |left| per tensor.
DumpComparison compare_dumps(FileSystem& fs, const std::string& left, const std::string& right,
                             double tolerance);

}  // namespace ingot
