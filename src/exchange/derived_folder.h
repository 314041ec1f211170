// Writes the folder of a model that no run of ours trained, as import makes it: one checkpoint, the tokenizer
// and other small files.
#pragma once
#include <nlohmann/json.hpp>

#include "checkpoint/writer.h"
#include "exchange/stored_model.h"

namespace ingot {

/// Throws Error if the folder exists and is not empty.
void require_new_folder(FileSystem& fs, const std::string& out);
/// Copies a model's tokenizer and other small files. `config`: also its config.json, which names the family.
void copy_small_files_of(FileSystem& fs, const StoredModel& from, bool config, const std::string& out);
/// What the checkpoint of such a model holds.
struct NewModel {
  ModelConfig config;
  HuggingfaceLayout layout = {};
  DType dtype = DType::f32;    ///< in which it runs
  std::string tokenizer = {};  ///< content hash; "" without one
  std::vector<Piece> pieces = {};
  std::string protection;  ///< why retention keeps it
  nlohmann::json origin;   ///< {"from": ...} or {"made_by": ...}: where it came from
  int64_t max_file_bytes = int64_t{1} << 30;
};
/// Writes `out`/checkpoints/step-00000000 and returns its path.
std::string write_new_model(FileSystem& fs, NewModel model, const std::string& out);
/// The same for a model made from another one, with its tokenizer and precision. `origin` has "made_by".
std::string write_derived_model(FileSystem& fs, const StoredModel& from, const ModelConfig& config,
                                const HuggingfaceLayout& layout, std::vector<Piece> pieces,
                                nlohmann::json origin, const std::string& out);

}  // namespace ingot
