// The tokenize job: raw text of one source in, a finished dataset folder out, or nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "data/manifest.h"
#include "data/source.h"

namespace ingot::data {

struct ConversationTokens {
  std::vector<int32_t> ids;
  std::vector<bool> in_loss;
  int64_t loss_bytes = 0;
};

/// The tokenizer as the job sees it, so that this folder does not depend on src/tokenizer.
struct TokenizerView {
  /// Sets tokens[i] to those of texts[i], for all i. May use threads; must be deterministic.
  std::function<void(std::span<const std::string_view> texts, std::vector<std::vector<int32_t>>& tokens)>
      encode;
  /// Of rows that are documents as they stand (SourceOptions::whole_rows()): a row becomes documents, of each
  /// ids, a bit for each (in the loss or not), and the number of bytes in the loss; a preference is two, the
  /// chosen and the rejected sequence, of which one may be empty. `where` is the row's file and line. May be
  /// called from many threads.
  std::function<void(std::string_view row, const std::string& where, std::vector<ConversationTokens>& tokens)>
      encode_row;
  std::string conversation_hash;  ///< over everything that determines it
  int64_t vocabulary = 0;
  int64_t eos = -1;             ///< appended to every document; -1: nothing is appended
  bool eos_first = false;       ///< it stands before the document instead
  int64_t bos = -1;             ///< put before every document; -1: nothing
  bool parses_special = false;  ///< `encode` makes tokens of special tokens that the text spells
  std::string hash;             ///< 32 hex digits over everything that determines the encoding
};

/// Which text is held out for validation.
enum class ValidationSplit {
  document_hash,  ///< whole documents, chosen by a hash of their text: equal documents fall on the same side
  tail            ///< the last part of the source, cut to the byte (moved to a character boundary)
};

struct TokenizeOptions {
  std::string name;                 ///< of the dataset; letters, digits, '-', '_', '.'
  std::vector<std::string> inputs;  ///< files, folders, patterns
  SourceOptions source;
  double validation_fraction = 0.01;  ///< 0: no validation split
  ValidationSplit validation = ValidationSplit::document_hash;
  int64_t shard_tokens = int64_t{1} << 25;  ///< a shard closes after the document that reaches this
  double checked_since = 0;                 ///< see CheckedFiles
};

struct TokenizeProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
};

/// Tokenizes into `folder`. Everything is written beside it, in "<folder>.partial", synced, and renamed into
/// place at the end, so an interruption at any moment leaves no dataset or a whole one; the next call starts
/// over. If `folder` already holds the result of the same inputs, options and tokenizer, it is
/// checked and kept; the text may be gone by then, and is read only where it has changed since it was read
/// last (checked_files.h). Memory: one document and a few megabytes, plus two shards. Errors: those of the
/// reader; no document at all; an empty split; a folder that holds the result of another job, with each
/// difference, or something else; the disk.
DatasetManifest tokenize(FileSystem& fs, const std::string& folder, const TokenizeOptions& options,
                         const TokenizerView& tokenizer,
                         const std::function<void(const TokenizeProgress&)>& progress = {});

}  // namespace ingot::data
