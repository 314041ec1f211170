// A folder like an import's for a model that was made from another without training: one checkpoint, the tokenizer and other
// small files.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "checkpoint/writer.h"
#include "exchange/stored_model.h"

namespace ingot {

/// Error where the folder exists and holds anything.
void require_new_folder(FileSystem& fs, const std::string& out);
/// Tokenizer and other small files of a model. `config`: its config.json too, which names the family.
void copy_small_files_of(FileSystem& fs, const StoredModel& from, bool config, const std::string& out);
/// The checkpoint; returns its path. `origin` ({"made_by": ..., ...}) is what it says of where it came from.
std::string write_derived_model(FileSystem& fs, const StoredModel& from, const ModelConfig& config,
                                const HuggingfaceLayout& layout, std::vector<Piece> pieces,
                                nlohmann::json origin, const std::string& out);

}  // namespace ingot
