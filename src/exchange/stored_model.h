// Opens a model, whatever names it: the one way in which every command takes a MODEL.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/enum.h"
#include "checkpoint/reader.h"
#include "models/huggingface.h"
#include "tokenizer/tokenizer.h"

namespace ingot {

enum class DocumentStart : uint8_t { nothing, begin_of_text, end_of_text };
constexpr auto enum_names(DocumentStart) {
  return names_in_order<DocumentStart>("nothing", "begin_of_text", "end_of_text");
}

struct StoredModel {
  CheckpointReader reader;
  ModelConfig config;
  std::string folder;            ///< of the run, import or Hugging Face model; "" for a checkpoint alone
  std::string small_files;       ///< the folder of Hugging Face files that it came with; "" without
  std::string tokenizer_folder;  ///< "" where it is in none of `tokenizer_places`
  std::vector<std::string> tokenizer_places;  ///< with the model, then where the recipe had it
  bool imported = false;
  /// What its training documents began with, by [data] of its recipe; unset for an import, whose tokenizer
  /// says.
  std::optional<DocumentStart> document_start;
  Precision precision;       ///< of its training; of an import, by the type of its weights
  HuggingfaceLayout layout;  ///< of an import; else without a family
};

/// Opens a run folder or an import (its newest checkpoint), a folder of checkpoints (the newest one), one
/// checkpoint, or a folder in Hugging Face's layout, which is imported in memory. Throws Error where `path`
/// is none of these, saying what was looked for, or is a run that has saved nothing yet.
StoredModel open_stored_model(FileSystem& fs, const std::string& path, Verify verify = Verify::bytes);

/// Loads the tokenizer that the model was trained with, from the folder `given`, or if that is empty from
/// tokenizer_folder. Throws Error if there is none, if it is another tokenizer, or if it has more tokens than
/// the model.
Tokenizer load_tokenizer(const StoredModel& model, const std::string& given = {});

}  // namespace ingot
