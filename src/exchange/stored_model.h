// Opens a model on disk, from a run or an import: its checkpoint, its config, and where its tokenizer is.
#pragma once
#include <optional>
#include <string>

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
  std::string folder;       ///< of the run or import, which holds `checkpoints`; "" for a checkpoint alone
  std::string small_files;  ///< the folder of Hugging Face files that it came with; "" without
  std::string tokenizer_folder;  ///< "" if unknown
  bool imported = false;
  /// What its training documents began with, by [data] of its recipe; unset for an import, whose tokenizer
  /// says.
  std::optional<DocumentStart> document_start;
  Precision precision;       ///< of its training; of an import, by the type of its weights
  HuggingfaceLayout layout;  ///< of an import; else without a family
};

/// Opens a run folder, an imported folder, a folder of checkpoints (the newest one is opened) or one
/// checkpoint.
StoredModel open_stored_model(FileSystem& fs, const std::string& path, Verify verify = Verify::bytes);

/// Loads the tokenizer that the model was trained with, from the folder `given`, or if that is empty from
/// where the model names it. Throws Error if there is none, if it is another tokenizer, or if it has more
/// tokens than the model.
Tokenizer load_tokenizer(const StoredModel& model, const std::string& given = {});

}  // namespace ingot
