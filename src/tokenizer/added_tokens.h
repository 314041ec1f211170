// Finds added tokens in text: the leftmost, and of those that start there the longest
// (huggingface/tokenizers, AddedVocabulary).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_spec.h"

namespace ingot {

class AddedTokenFinder {
 public:
  /// Looks for the given tokens; contents are distinct and not empty.
  explicit AddedTokenFinder(std::span<const AddedToken> tokens);

  struct Found {
    size_t begin, end;
    int32_t index;  ///< into the span given to the constructor; -1: none before the end of the text
  };
  /// First token at or after `from`.
  Found find(std::string_view text, size_t from) const;
  bool empty() const { return nodes_.size() <= 1; }

  /// What a found token takes: white space beside it as its flags say, but none before `covered`. index -1:
  /// it is part of a word, and the token wants to be one alone.
  static Found extent(const AddedToken& token, std::string_view text, Found found, size_t covered);

 private:
  struct Node {
    int32_t token = -1;  // index of the token that ends here
    std::vector<std::pair<uint8_t, uint32_t>> children;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;
  std::vector<Node> nodes_;
  uint32_t first_[256] = {};  // children of the root; 0: none
};

}  // namespace ingot
