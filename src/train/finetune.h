// The recipe of a fine-tuning: composed from a stored model and a person's own text, then run by the same
// trainer as any other recipe (docs/exchange.md).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "exchange/stored_model.h"
#include "train/recipe.h"

namespace ingot {

struct FinetuneOptions {
  std::string data;  ///< text, .jsonl with a field of text per row, a folder, or a pattern
  std::string run_folder;
  /// Field of a row whose tokens are in the loss; "": "completion" where rows have "prompt" and "completion",
  /// else "text".
  std::string field;
  /// Field of a row that comes before it and is not in the loss; "": "prompt" in such rows, else none.
  std::string prompt_field;
  std::string tokenizer;       ///< "": the model's
  std::string chat_template;   ///< of conversations: folder, .jinja file or shipped name; "": the model's
  bool trust_text = false;     ///< special tokens that messages spell become tokens
  bool parse_special = false;  ///< special tokens that the text spells become tokens
  std::vector<std::string> freeze;  ///< name patterns of parameters that do not change
  LoraConfig lora;                  ///< rank > 0: train adapters only
  double epochs = 1;
  std::optional<double> lr;     ///< none: 2e-5; of preferences a tenth
  PreferenceConfig preference;  ///< of rows that are preferences
  int64_t batch = 8;
  int64_t sequence = 0;  ///< 0: the model's context, at most 1024
  /// Leaves out rows longer than a sequence: with prompts, preferences. Without it they are an Error.
  /// Conversations lose reasoning instead (data/trim.h), and those whose answers do not fit are left out.
  bool drop_too_long = false;
  double validation_fraction = 0.05;  ///< of the documents; of fewer than 200 none
};

/// Copies the model's small files into the run folder, tokenizes the data there, and returns the recipe:
/// AdamW without decay at a linearly falling rate, for as many steps as the epochs need. Of rows with a
/// prompt only the completion (and the end-of-text token) is in the loss; such rows are packed whole, with
/// document masks. Every document begins with what the model's sequences begin with (control_tokens()). Rows
/// that are conversations (chat/conversation.h) become text by the model's chat template, and what the
/// assistant writes is in the loss; the template and the id that ends a turn go into the run's folder, so
/// that an export has them. Rows that are preferences (chat/preference_row.h) make a phase of kind
/// "preference", whose reference is the model. Error for a model without a tokenizer, and for messages
/// without a template.
Recipe finetune_recipe(FileSystem& fs, const StoredModel& model, const FinetuneOptions& options);

}  // namespace ingot
