// Whether a run would continue bit for bit from its checkpoint: the program, the tokenizer and the recipe.
#pragma once
#include <string>

#include "checkpoint/reader.h"
#include "train/recipe.h"

namespace ingot {

/// Throws Error where the kernels or the tokenizer (by content hash) are others, or the recipe has other
/// values of what has decided the weights so far. Other changes of the recipe are warned of where `warns`.
void require_same_run(const CheckpointReader& reader, const Recipe& recipe, const std::string& tokenizer,
                      bool warns);

/// Throws Error where the folder holds checkpoints, none of which can be restored.
void require_no_checkpoints(FileSystem& fs, const std::string& folder);

}  // namespace ingot
