// A model on disk, whoever made it: a run of ours or an import. Where its checkpoint is, what runs it, its tokenizer.
#pragma once
#include <optional>
#include <string>

#include "checkpoint/reader.h"
#include "models/huggingface.h"
#include "tokenizer/tokenizer.h"

namespace ingot {

struct StoredModel {
  CheckpointReader reader;
  ModelConfig config;
  std::string
      folder;  ///< that holds `checkpoints`: the run's or the import's; "" for a checkpoint that stands alone
  std::string small_files;       ///< folder of Hugging Face files that it came with, "" without
  std::string tokenizer_folder;  ///< "" where none is known
  bool imported = false;
  Precision precision;       ///< that it was trained in; of an import: by the type of its weights
  HuggingfaceLayout layout;  ///< of an import: the one that it came in; else an empty family
};

/// `path`: a run folder, an imported folder, a folder of checkpoints (the newest) or one checkpoint.
StoredModel open_stored_model(FileSystem& fs, const std::string& path, Verify verify = Verify::bytes);

/// The tokenizer that the model was trained with: from `given` where not empty, else from where the model says. Error
/// where it is another one, has more tokens than the model, or there is none.
Tokenizer load_tokenizer(const StoredModel& model, const std::string& given = {});

}  // namespace ingot
