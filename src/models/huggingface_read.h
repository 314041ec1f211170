// What the readers of families' config.json share (huggingface_config.cpp, huggingface_dense.cpp): sizes,
// rotations and windows from the fields of a file. All throw Error that names file and field.
#pragma once
#include <functional>
#include <string>

#include "models/huggingface_fields.h"
#include "nn/config.h"

namespace ingot {

inline constexpr int64_t kMaxLayers = 4096, kMaxHeads = 1 << 16, kMaxVocab = 1 << 28;
inline constexpr double kTiny = 1e-30, kHuge = 1e18;

/// The fields of Llama that its relatives share.
ModelConfig common_fields(const Fields& f);

/// The scaling of the rotation. The original context stands beside the table, in it, or is the model's.
void read_rope_scaling(const Fields& f, const Fields& rope, ModelConfig& m);
/// Both dialects: rope_scaling (older), which wins where it says something, or rope_parameters. The base
/// stands in the table, or beside it, as does the share of a head that rotates, of families that have one
/// (`partial`).
void read_rope(const Fields& f, ModelConfig& m, bool partial = false);

/// The pattern of a list with one entry per layer; empty where all layers have the letter `all`.
std::string pattern_of(const Fields& f, const char* name, const ModelConfig& m, char all, bool exact,
                       const std::function<char(const nlohmann::json&)>& letter);
/// Windows of families whose layers are all alike: these heed no list of types, so one must say the same.
void read_one_window(const Fields& f, ModelConfig& m, bool use = true);
/// Windows of families whose layers have types: the list, or what `slides` says.
void read_windows(const Fields& f, ModelConfig& m, bool use, const std::function<bool(int64_t)>& slides);

/// Families without experts (mistral and llama among them).
ModelConfig read_dense_family(const Fields& f, const std::string& model_type);

}  // namespace ingot
