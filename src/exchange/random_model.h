// Random weights in a model's exact shape, for measurements of models whose weights nobody has here, or that are too large to
// initialise: in memory, or as a checkpoint that is written piece by piece, whatever its size.
#pragma once
#include <string>

#include "base/file_system.h"
#include "models/model.h"

namespace ingot {

/// Elements `first`, first + 1, ... of a parameter as f32 or bf16: even, with the standard deviation of its initial values (constants as they
/// are). A pure function of (seed, name, element); a nanosecond each.
void random_values(const ParameterSpec& spec, uint64_t seed, int64_t first, const Tensor& out);

/// Writes `folder/checkpoints/step-00000000`, to be opened like an import without tokenizer; returns its path. Memory: one file's
/// largest piece. Error where the folder exists and is not empty.
std::string write_random_model(FileSystem& fs, const ModelConfig& config, DType dtype, uint64_t seed,
                               const std::string& folder);

}  // namespace ingot
