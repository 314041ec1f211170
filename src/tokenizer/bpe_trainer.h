// Learns a byte-level BPE vocabulary. The result is that of Hugging Face's BpeTrainer with the byte alphabet
// as initial alphabet, token for token and merge for merge (models/bpe/trainer.rs): the most frequent pair is
// merged, ties go to the smallest (left id, right id); ids are special tokens, then the 256 bytes by their
// stand-in code point, then merges in order. It does not depend on the number of threads or the order of
// documents.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace ingot {

struct BpeTrainOptions {
  int32_t vocab_size = 8192;     ///< special tokens and bytes included; at least 256 + special tokens
  std::string pattern = "gpt2";  ///< a name that set_pattern() knows, or a regular expression
  std::vector<std::string> special_tokens;  ///< get the first ids, in this order
  int64_t min_frequency = 0;                ///< stop when the best pair occurs less often
  /// A merge whose token would have this many bytes or more is not considered (Hugging Face's rule); 0: no
  /// limit.
  int32_t max_token_length = 0;
  /// Called now and then from the training thread: tokens so far and the goal.
  std::function<void(int32_t tokens, int32_t vocab_size)> progress;
};

class BpeTrainer {
 public:
  /// Throws Error for options that cannot work.
  explicit BpeTrainer(BpeTrainOptions options);
  ~BpeTrainer();
  BpeTrainer(const BpeTrainer&) = delete;
  BpeTrainer& operator=(const BpeTrainer&) = delete;

  /// Counts the pieces of some documents, in parallel; may be called often, keeps distinct pieces only.
  /// Special tokens in the text are text. Bytes that are not UTF-8 form pieces of their own.
  void add(std::span<const std::string_view> documents);

  /// Learns the merges. Fewer tokens than asked for come out when the text has no more pairs (a warning says
  /// so); no text at all is an Error.
  Tokenizer train() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
