// Gives a model new special tokens: ids behind those of its tokenizer, and rows of the embedding and the head
// for them. The result is a folder like that of an import. See docs/tokenizer.md.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"

namespace ingot {

struct AddedTokens {
  std::string checkpoint;
  std::vector<int32_t> ids;                   ///< of the tokens, in their order
  int64_t vocab_before = 0, vocab_after = 0;  ///< rows; equal where padding sufficed
};

/// Writes the model with the new tokens to the new folder `out`. A new row (also one of padding that a token
/// takes) is the mean of the rows of the tokenizer's tokens, in double, in the type that the model is stored
/// in; all other values keep their bits. Throws Error for a token that the tokenizer has already, for a model
/// without a tokenizer or with adapters, and if `out` holds a model.
AddedTokens add_special_tokens(FileSystem& fs, const std::string& model,
                               const std::vector<std::string>& tokens, const std::string& out);

}  // namespace ingot
