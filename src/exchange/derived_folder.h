// Writes the folder of a model that was made from another one without training: one checkpoint, the tokenizer
// and other small files, as an import has them.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "checkpoint/writer.h"
#include "exchange/stored_model.h"

namespace ingot {

/// Throws Error if the folder exists and is not empty.
void require_new_folder(FileSystem& fs, const std::string& out);
/// Copies a model's tokenizer and other small files. `config`: also its config.json, which names the family.
void copy_small_files_of(FileSystem& fs, const StoredModel& from, bool config, const std::string& out);
/// Writes the checkpoint and returns its path. `origin` ({"made_by": ..., ...}) records where the model came
/// from.
std::string write_derived_model(FileSystem& fs, const StoredModel& from, const ModelConfig& config,
                                const HuggingfaceLayout& layout, std::vector<Piece> pieces,
                                nlohmann::json origin, const std::string& out);

}  // namespace ingot
