// Rows of JSONL sources that are documents as they stand, conversations and preferences, as ids: what
// prepare_data() gives the tokenize job.
#pragma once
#include <memory>

#include "base/file_system.h"
#include "chat/chat_template.h"
#include "data/tokenize_job.h"
#include "train/recipe.h"

namespace ingot {

class RowEncoder {
 public:
  /// The recipe's chat template (data.chat_template, else the tokenizer's folder `folder`) is opened where a
  /// source needs one. The tokenizer must outlive this and the views.
  RowEncoder(FileSystem& fs, const Recipe& recipe, const Tokenizer& tokenizer, const std::string& folder);
  /// Sets what `view` does with the rows of a source; nothing for other sources.
  ///   conversations: one document a row. With each_turn, one for every assistant's turn whose reasoning the
  ///     whole rendering would leave out: the conversation up to it, of which only it is in the loss. With
  ///     thinking = both, a row with reasoning also gives one without it, rendered with enable_thinking off.
  ///   preferences: two documents a row, chosen and rejected, of which one may be empty. Plain rows are
  ///     encoded as rows with prompt_field are, without a template.
  void describe(const SourceConfig& source, data::TokenizerView& view) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace ingot
