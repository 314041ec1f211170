// Opens a folder in the layout of Hugging Face: config.json, and every tensor of model.safetensors or of the
// shards that model.safetensors.index.json names. Files are mapped into memory, not read. Sources:
// huggingface/safetensors and transformers, see docs/exchange.md.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "models/huggingface.h"

namespace ingot {

/// Parses an index file into tensor name -> file name. Throws Error if there is no `weight_map` of strings, a
/// file name is not plain (has '/' or '..'), a tensor is named twice, or the text is deeply nested or larger
/// than 64 MiB. Ignores `total_size`, because published files disagree on what it counts. `path` is for
/// messages.
std::map<std::string, std::string> parse_weight_index(std::string_view text, const std::string& path);

class HuggingfaceFolder {
 public:
  /// Throws Error if the folder, config.json or the weights are missing (pickled weights do not count), or a
  /// shard is missing, damaged, or does not hold what the index says.
  HuggingfaceFolder(FileSystem& fs, std::string path);

  struct Found {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    std::span<const std::byte> data() const { return file->data(*entry); }
  };
  const std::string& path() const { return path_; }
  std::string config_path() const { return path_ + "/config.json"; }
  const std::string& config() const { return config_; }
  const std::map<std::string, Found>& tensors() const { return tensors_; }
  size_t files() const { return files_.size(); }

  /// The model that config.json describes, and the layout of the tensors' names.
  ModelConfig model() const;
  HuggingfaceLayout layout() const;

 private:
  int64_t zaya_sublayers() const;
  void open_single(FileSystem& fs);
  void open_shards(FileSystem& fs);

  std::string path_, config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Found> tensors_;
};

/// The names of the small files that import and export copy: tokenizer, chat template, configs.
const std::vector<std::string>& huggingface_small_files();
/// Copies those of the small files that exist; creates the folder `to`.
void copy_small_files(FileSystem& fs, const std::string& from, const std::string& to);

}  // namespace ingot
