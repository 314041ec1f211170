// Whether a run would continue bit for bit from its checkpoint: the program, the tokenizer and the recipe.
#pragma once
#include <string>

#include "checkpoint/reader.h"
#include "train/recipe.h"

namespace ingot {

/// kernel_set_fingerprint() of the recipe's runs on this device, and the GPU's architecture where that
/// decides bits: what they record.
std::string kernel_set_of(const Recipe& recipe);

/// Throws Error where the kernels (unless `accept_kernels`) or the tokenizer (by content hash) are others, or
/// the recipe has other values of what has decided the weights so far. Other changes of the recipe, and
/// accepted kernels, are warned of where `warns`.
void require_same_run(const CheckpointReader& reader, const Recipe& recipe, const std::string& tokenizer,
                      bool accept_kernels, bool warns);

/// For a run folder without a checkpoint that can be restored. Throws Error where it holds checkpoints, or
/// lacks their folder and has metrics of steps at which one was due: part of a run, which starting anew would
/// overwrite. Says in the log that a run which was recorded starts again.
void require_new_run(FileSystem& fs, const Recipe& recipe);

}  // namespace ingot
