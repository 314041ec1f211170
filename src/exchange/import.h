// Imports a model of Hugging Face as a checkpoint. Every tensor is used exactly once and keeps its bits. See
// docs/exchange.md.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/reader.h"
#include "models/huggingface.h"

namespace ingot {

struct ImportOptions {
  bool tokenizer = true;  ///< false: do not import the tokenizer (this program cannot read every one)
};

struct ImportReport {
  std::string checkpoint;  ///< its folder
  ModelConfig model;
  HuggingfaceLayout layout;
  int64_t parameters = 0, bytes = 0;  ///< of weights as stored
  size_t tensors = 0, files = 0;
  std::string statistics;               ///< a table, for people
  std::vector<std::string> suspicions;  ///< numbers that do not look like weights
  std::vector<std::string> notes;       ///< tensors that are copies or constants: checked, not stored
};

/// Reads the folder `from` and writes `out/checkpoints/step-00000000`, with the weights in their own types,
/// and `out/huggingface/`, with unchanged small files (config, tokenizer). Takes the memory of one copy of
/// the weights. Throws an Error that lists every missing, unexpected and misshapen tensor with the nearest
/// names; one that names file and tensor if a tensor is damaged, not finite or not of a floating type; one
/// for an unknown model_type; and one if `out` holds checkpoints already.
ImportReport import_huggingface(FileSystem& fs, const std::string& from, const std::string& out,
                                const ImportOptions& options = {});

/// The same without writing anything: the checkpoint lies in memory while the reader lives, and bears the
/// name of the folder. Takes the memory of two copies of the weights at first, of one later.
CheckpointReader import_in_memory(FileSystem& fs, const std::string& from);

/// The blob of an imported checkpoint that records where it came from.
inline constexpr const char* kImportBlob = "import";
/// The folder of the small files, beside `checkpoints`.
inline constexpr const char* kSmallFiles = "huggingface";

}  // namespace ingot
