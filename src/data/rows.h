// Filling batch rows: a window of a split's token stream, or whole documents side by side.
#pragma once
#include <cstdint>
#include <map>
#include <span>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/trim.h"

namespace ingot::data {

/// All functions below mask targets that are prompts (TokenSplit::in_loss).

/// An empty batch of the given shape; rows are appended in order by the functions below.
Batch make_batch(int64_t rows, int64_t sequence_length);

/// Appends the window [first, first + S] of the split (S + 1 tokens: S inputs and the targets one further).
/// Where the split ends sooner, the row is padded with masked positions; at least two tokens must remain. Row
/// number = rows appended before. `origin` is stored.
void append_window(const TokenSplit& split, int64_t first, const RowOptions& options, RowOrigin origin,
                   Batch& batch);

/// Appends whole documents one after another, in order, of those in `trimmed` what is kept of them; their
/// tokens must fit S. The last token of a document has no target. The rest of the row is padding.
void append_documents(const TokenSplit& split, std::span<const int64_t> documents, const RowOptions& options,
                      RowOrigin origin, Batch& batch, const std::map<int64_t, Trimmed>& trimmed = {});

/// A complete pass over a split: windows of S without overlap, so that every token but the first is a target
/// once (except those that the options mask). Divide the summed loss by targets() for a mean, or by ln 2 *
/// text_bytes() for bits per byte.
class ValidationPass {
 public:
  /// Error where the split has fewer than two tokens.
  ValidationPass(std::shared_ptr<const TokenSplit> split, int64_t sequence_length, RowOptions options);
  int64_t windows() const { return windows_; }
  /// Targets of the whole pass that are not masked.
  int64_t targets() const { return targets_; }
  int64_t text_bytes() const { return split_->text_bytes(); }
  /// Windows [first, first + rows), fewer at the end.
  Batch batch(int64_t first, int64_t rows) const;

 private:
  std::shared_ptr<const TokenSplit> split_;
  int64_t sequence_length_;
  RowOptions options_;
  int64_t windows_;
  int64_t targets_;
};

}  // namespace ingot::data
