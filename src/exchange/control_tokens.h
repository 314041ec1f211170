// The tokens around a text of a model on disk: what stands before whatever begins a sequence, and what ends a
// generation.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/stored_model.h"

namespace ingot {

struct ControlTokens {
  std::optional<int32_t> begin;
  std::vector<int32_t> end;  ///< ascending
  /// "<|bos|>", "none" or "<|a|> <|b|>": for people and records.
  static std::string text(const Tokenizer& tokenizer, std::span<const int32_t> ids);
};

/// Of an import: the begin token of its tokenizer (Tokenizer::begin_token), and the end ids that transformers
/// stops at: those of generation_config.json, else those of config.json, else the tokenizer's end-of-text
/// token. Of a run: what its documents began with (data.begin_of_text, data.end_of_text_first), and their
/// end-of-text token beside the ids of a generation_config.json that came with the model it started from.
/// Throws Error for an id that is no token.
ControlTokens control_tokens(FileSystem& fs, const StoredModel& model, const Tokenizer& tokenizer);

}  // namespace ingot
