// A tokenized dataset on disk, opened for reading: one source of text, divided into splits of tokens.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/checked_files.h"
#include "data/manifest.h"
#include "data/token_shard.h"

namespace ingot::data {

/// The documents of one split as one row of tokens, across shards. Immutable, thread-safe. Tokens and
/// documents are numbered from 0 within the split.
class TokenSplit {
 public:
  TokenSplit(std::string source, const SplitInfo& info, std::string content_hash, int64_t eos, bool prompts,
             std::vector<std::unique_ptr<Shard>> shards);
  const std::string& source() const { return source_; }  ///< name of the dataset
  const std::string& name() const { return name_; }      ///< "train" or "validation"
  const std::string& content_hash() const { return content_hash_; }
  int64_t tokens() const { return token_bounds_.back(); }
  int64_t documents() const { return document_bounds_.back(); }
  int64_t text_bytes() const { return text_bytes_; }
  int64_t eos() const { return eos_; }  ///< the token that ends every document, -1: none
  /// Copies tokens [begin, begin + out.size()).
  void read(int64_t begin, std::span<int32_t> out) const;
  /// Some tokens are prompts, which the loss leaves out.
  bool prompts() const { return prompts_; }
  /// Whether the loss counts the token.
  bool in_loss(int64_t token) const;
  /// Number of the document's first token; document == documents() gives tokens().
  int64_t document_begin(int64_t document) const;
  /// The document that holds the token.
  int64_t document_at(int64_t token) const;

 private:
  std::string source_;
  std::string name_;
  std::string content_hash_;
  int64_t text_bytes_;
  int64_t eos_;
  bool prompts_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<int64_t> token_bounds_;     // shard s holds tokens [bounds[s], bounds[s + 1])
  std::vector<int64_t> document_bounds_;  // and documents likewise
};

struct OpenOptions {
  bool verify_hashes = false;  ///< read and hash every byte; sizes and headers are checked always
  std::string tokenizer_hash;  ///< if not empty: the dataset must have been made with this tokenizer
  /// With verify_hashes: only of shards that have changed since they were read last.
  CheckedFiles* checked = nullptr;
};

class Dataset {
 public:
  /// Opens a folder that tokenize() wrote. Error where the manifest is missing (an unfinished job), damaged
  /// or newer, where a shard is missing, truncated, changed or another dataset's, or where the tokenizer
  /// differs.
  static Dataset open(FileSystem& fs, const std::string& folder, const OpenOptions& options = {});
  const DatasetManifest& manifest() const { return manifest_; }
  const std::string& name() const { return manifest_.name; }
  const std::string& folder() const { return folder_; }
  bool has_split(std::string_view name) const;
  /// Error where the dataset has no such split, naming those it has.
  std::shared_ptr<const TokenSplit> split(std::string_view name) const;
  std::shared_ptr<const TokenSplit> train() const { return split("train"); }
  std::shared_ptr<const TokenSplit> validation() const { return split("validation"); }

 private:
  std::string folder_;
  DatasetManifest manifest_;
  std::vector<std::shared_ptr<const TokenSplit>> splits_;
};

}  // namespace ingot::data
