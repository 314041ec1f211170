// A token shard: one memory-mapped file with the tokens of whole documents and where each document begins.
//
// Layout, little endian: header (128 bytes) | tokens (u16 or u32) | zero padding to 8 bytes | where prompts
// are not in the loss, a bit per token (1: in the loss), padded alike | document index: for each document the
// u64 number of its first token, then the token count. See docs/data.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "data/manifest.h"

namespace ingot::data {

/// Tokens that fit 16 bits when the vocabulary does, else 32.
constexpr int64_t token_bytes_for(int64_t vocabulary) {
  return vocabulary <= 65536 ? 2 : 4;
}

/// Gathers documents in memory and writes them as one shard.
class ShardWriter {
 public:
  /// `tokenizer_hash`: 32 hex digits, repeated in the header so that a shard cannot pass for another
  /// tokenizer's.
  ShardWriter(int64_t vocabulary, std::string tokenizer_hash, bool prompts = false);
  /// Adds a document whose first `prompt` tokens are not in the loss. Error on a token outside [0,
  /// vocabulary).
  void add(std::span<const int32_t> tokens, int64_t text_bytes, int64_t prompt = 0);
  /// The same with a bit for every token: in the loss or not.
  void add(std::span<const int32_t> tokens, int64_t text_bytes, const std::vector<bool>& in_loss);
  int64_t tokens() const;
  int64_t documents() const { return static_cast<int64_t>(starts_.size()); }
  /// Writes and syncs folder/file, then starts empty again. Returns what the manifest says about it.
  ShardInfo finish(FileSystem& fs, const std::string& folder, const std::string& file);

 private:
  int64_t vocabulary_;
  int64_t token_bytes_;
  std::string tokenizer_hash_;
  std::vector<std::byte> data_;
  std::vector<uint64_t> starts_;
  bool prompts_;
  std::vector<std::byte> in_loss_;  // a bit per token
  int64_t text_bytes_ = 0;
};

/// A mapped shard. Thread-safe.
class Shard {
 public:
  /// Opens folder/info.file and checks its size, header and index bounds against the manifest; with `verify`
  /// also its hash and every index entry. Error names the file, what was expected and what was found.
  Shard(FileSystem& fs, const std::string& folder, const ShardInfo& info, const DatasetManifest& manifest,
        bool verify);
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  /// Copies tokens [begin, begin + out.size()). Error on a token outside the vocabulary.
  void read(int64_t begin, std::span<int32_t> out) const;
  /// Whether the loss counts the token.
  bool in_loss(int64_t token) const;
  /// Number of the first token of a document; document == documents() gives tokens().
  int64_t document_begin(int64_t document) const;
  /// The document that holds the token, 0 <= token < tokens().
  int64_t document_at(int64_t token) const;

 private:
  void check_header(const ShardInfo& info, const DatasetManifest& manifest) const;
  void check_content(const ShardInfo& info) const;
  std::string path_;
  std::unique_ptr<MappedFile> map_;
  const std::byte* data_ = nullptr;
  const std::byte* in_loss_ = nullptr;  // nullptr: all
  const std::byte* index_ = nullptr;
  int64_t tokens_;
  int64_t documents_;
  int64_t token_bytes_;
  int64_t vocabulary_;
};

}  // namespace ingot::data
