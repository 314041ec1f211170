// Random weights in the exact shape of a model, for measurements of models whose weights are not at hand or
// that are too large to initialise: in memory, or as a checkpoint of any size that is written piece by piece.
#pragma once
#include <string>

#include "base/file_system.h"
#include "models/model.h"

namespace ingot {

/// Fills `out` (f32 or bf16) with the elements of a parameter from `first` on: uniform, with the standard
/// deviation of its initial values; constants are as initialised. A pure function of (seed, name, element)
/// that takes a nanosecond each.
void random_values(const ParameterSpec& spec, uint64_t seed, int64_t first, const Tensor& out);

/// Writes `folder/checkpoints/step-00000000`, which opens like an import without tokenizer, and returns its
/// path. Takes the memory of the largest piece of a file. Throws Error if the folder exists and is not empty.
std::string write_random_model(FileSystem& fs, const ModelConfig& config, DType dtype, uint64_t seed,
                               const std::string& folder);

}  // namespace ingot
