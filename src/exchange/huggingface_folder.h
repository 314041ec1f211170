// A folder in the layout of Hugging Face, opened: config.json, and every tensor of model.safetensors or of the shards that
// model.safetensors.index.json names. Files are mapped, not read. Source: huggingface/safetensors and transformers
// (docs/exchange.md).
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "models/huggingface.h"

namespace ingot {

/// Tensor name -> file name, of an index file's text. Error for what is no index: no `weight_map` of strings, a file name
/// that is not plain (with '/' or '..'), a tensor named twice, nesting, more than 64 MiB. `total_size` is advice and
/// ignored, since published files disagree on what it counts. `path` is for messages.
std::map<std::string, std::string> parse_weight_index(std::string_view text, const std::string& path);

class HuggingfaceFolder {
 public:
  /// Error where there is no such folder, no config.json, no weights (or only pickled ones), a shard is missing, damaged,
  /// or does not hold what the index says.
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

  /// The model of config.json and the layout of the tensors' names.
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

/// The small files beside the weights that a model keeps on its way through: tokenizer, chat template, configs.
const std::vector<std::string>& huggingface_small_files();
/// Copies those that are there; creates the folder.
void copy_small_files(FileSystem& fs, const std::string& from, const std::string& to);

}  // namespace ingot
