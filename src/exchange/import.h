// A model of Hugging Face becomes a checkpoint of ours: every tensor used exactly once, bits unchanged. docs/exchange.md.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "models/huggingface.h"

namespace ingot {

struct ImportOptions {
  bool tokenizer = true;  ///< false: leave the tokenizer out (one that this program cannot read)
};

struct ImportReport {
  std::string checkpoint;  ///< its folder
  ModelConfig model;
  HuggingfaceLayout layout;
  int64_t parameters = 0, bytes = 0;  ///< of weights as stored
  size_t tensors = 0, files = 0;
  std::string statistics;               ///< a table, for people
  std::vector<std::string> suspicions;  ///< numbers that do not look like weights
  std::vector<std::string>
      notes;  ///< tensors that are copies or constants and were checked instead of stored
};

/// Reads the folder `from` and writes `out`: `out/checkpoints/step-00000000` with the weights in their own types, and
/// `out/huggingface/` with the small files (config, tokenizer) as they are. Memory: one copy of the weights in their own
/// types. Error that lists every missing, unexpected and misshapen tensor with the nearest names; one that names file and
/// tensor for damage, NaN or a type without numbers; for another model_type; where `out` holds checkpoints already.
ImportReport import_huggingface(FileSystem& fs, const std::string& from, const std::string& out,
                                const ImportOptions& options = {});

/// The state of an imported checkpoint that says where it came from.
inline constexpr const char* kImportBlob = "import";
/// Folder beside `checkpoints` with the small files.
inline constexpr const char* kSmallFiles = "huggingface";

}  // namespace ingot
