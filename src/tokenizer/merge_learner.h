// The merge loop of BPE training, as in huggingface/tokenizers models/bpe/trainer.rs.
#pragma once
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/piece_counter.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {

/// Extends spec.vocabulary (special tokens and the 256 bytes are there) and spec.merges up to
/// options.vocab_size.
void learn_merges(const PieceCounter& pieces, const BpeTrainOptions& options, TokenizerSpec& spec);

}  // namespace ingot
