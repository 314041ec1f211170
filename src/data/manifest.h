// The manifest of a tokenized dataset: its shards, the files and options it was made from, and hashes of all
// bytes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::data {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int64_t kManifestVersion = 1;

struct ShardInfo {
  std::string file;  // a plain name, in the folder of the manifest
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t text_bytes = 0;  // UTF-8 bytes of the text in the loss, separators not counted
  int64_t file_bytes = 0;
  std::string hash;  // XXH3-128 of the file, 32 hex digits
};

struct SplitInfo {
  std::string name;  // "train" or "validation"
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t text_bytes = 0;
  std::vector<ShardInfo> shards;

  /// Of all shards.
  int64_t file_bytes() const;
};

/// A raw file that the dataset was made from.
struct InputInfo {
  std::string path;
  int64_t bytes = 0;
  std::string hash;
};

struct DatasetManifest {
  std::string name;
  int64_t token_bytes = 2;  // 2 or 4
  int64_t vocabulary = 0;
  int64_t eos = -1;      // token that ends every document, -1: none
  bool prompts = false;  // some tokens are not in the loss: shards say which
  std::string tokenizer_hash;
  std::string job;      // hash of everything that determines the content: inputs, options, tokenizer
  std::string options;  // the options in words, for people
  std::vector<InputInfo> inputs;
  std::vector<SplitInfo> splits;

  /// Hash of the content of one split (its shards' hashes): two equal ones hold the same tokens.
  std::string content_hash(const SplitInfo& split) const;
};

std::string to_json(const DatasetManifest& manifest);

/// Reads and checks a manifest: every key known and of its type, counts within range and adding up, file
/// names plain. `origin` names the text in errors. Throws Error on anything else, a newer version included.
DatasetManifest parse_manifest(std::string_view text, const std::string& origin);

}  // namespace ingot::data
