// The unigram model of SentencePiece: of all ways to write a piece of text as tokens, the one with the
// largest sum of scores (log-probabilities), found by dynamic programming (Kudo 2018; huggingface/tokenizers,
// models/unigram). Characters that no token begins with or holds become the tokens of their bytes.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/pair_map.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {

struct UnigramScratch {
  struct Best {
    double score;
    int32_t begin, id;  // of the last token; begin -1: nothing ends here, id -1: a character without a token
  };
  std::vector<Best> best;
  std::vector<Best> path;  // the tokens, last first
};

class UnigramModel {
 public:
  /// Throws Error if a byte has no token, or the scores do not fit the vocabulary.
  explicit UnigramModel(const TokenizerSpec& spec);

  /// Appends the ids of `piece` (valid UTF-8, at most 2^31 - 1 bytes). Thread-safe.
  void encode(std::string_view piece, UnigramScratch& scratch, std::vector<int32_t>& ids) const;
  /// The ids of bytes that are no text.
  void encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const;

 private:
  void add(std::string_view token, int32_t id);
  int32_t find(std::string_view token) const;

  struct Node {
    int32_t id = -1;
  };
  std::vector<Node> nodes_;
  PairMap<int32_t> child_;  // by (node, byte): node
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int32_t byte_id_[256];
};

}  // namespace ingot
