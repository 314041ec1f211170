// A tokenizer in a GGUF file: llama.cpp's kinds "gpt2" (BPE over bytes) and "llama" (SentencePiece's BPE,
// with tokens for bytes). Source: llama.cpp's src/llama-vocab.cpp.
#pragma once
#include <string>
#include <vector>

#include "exchange/gguf.h"
#include "tokenizer/tokenizer.h"

namespace ingot {

/// Adds the tokenizer's keys for a model of `vocab` ids; ids beyond the tokenizer become unused tokens.
/// `chat_template`: "" for none. Where llama.cpp may give other ids for some text, a sentence in `notes` says
/// so. Throws Error for a tokenizer that it has no kind for.
void add_gguf_tokenizer_keys(GgufWriter& writer, const Tokenizer& tokenizer, int64_t vocab,
                             const std::string& chat_template, std::vector<std::string>& notes);

}  // namespace ingot
