// What a tokenizer does to texts: how many bytes a token holds by kind of text, which of its ids plain text
// cannot give, its longest tokens, and whether bytes come back from their ids.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace ingot {

struct NamedText {
  std::string name, text;
};

struct TokenizerReport {
  struct Text {
    std::string name;
    int64_t bytes = 0, tokens = 0;
    bool comes_back = false;  ///< decode_bytes(encode(text)) is the text
  };
  std::vector<Text> texts;           ///< those given, or short samples of ten kinds
  int64_t holes = 0;                 ///< ids below vocab_size() that no token has
  std::vector<int32_t> unreachable;  ///< ordinary tokens whose own text encodes to something else
  std::vector<int32_t> unused;       ///< ordinary tokens that no given text has; empty without texts
  std::vector<int32_t> longest;      ///< ten ordinary tokens, the longest first, then by id
  std::vector<int32_t> special;
  int64_t random_texts = 0, random_back = 0;  ///< texts of random bytes, and those that came back
};

/// Throws Error where a text cannot be encoded (characters without a token of a character tokenizer, for
/// which there are no samples and no random texts).
TokenizerReport report_on(const Tokenizer& tokenizer, std::span<const NamedText> texts = {});

}  // namespace ingot
