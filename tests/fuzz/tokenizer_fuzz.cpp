// Fuzzes the tokenizer. The first byte chooses: a tokenizer.json to read and use; text to encode with a good
// one, whose bytes must come back; a split pattern, up to the first zero byte, and a text for it; or a
// SentencePiece model. tests/tokenizer/tokenizer_fuzz_test.cpp replays tests/fuzz/corpus/tokenizer.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace {

using namespace ingot;

Tokenizer learn(const char* pattern) {
  BpeTrainer trainer({.vocab_size = 300, .pattern = pattern, .special_tokens = {"<|end|>", "<|"}});
  const std::string_view documents[] = {
      "the quick brown fox's 123 jumps\n\n over  the lazy dog; the end, the the"};
  trainer.add(documents);
  return trainer.train();
}

void read_json(std::string_view text) {
  const Tokenizer tokenizer = Tokenizer::from_json(text);
  tokenizer.decode(tokenizer.encode("the 12 <|end|>\n x\xFFy", {.parse_special = true}));
  const Tokenizer again = Tokenizer::from_json(write_tokenizer_json(tokenizer.spec()));
  if (again.content_hash() != tokenizer.content_hash()) std::abort();
}

void read_sentencepiece(std::string_view bytes) {
  const Tokenizer tokenizer = Tokenizer::from_sentencepiece(bytes);
  tokenizer.decode(tokenizer.encode("the 12 <s>\n x\xFFy", {.parse_special = true}));
  const Tokenizer again = Tokenizer::from_json(write_tokenizer_json(tokenizer.spec()));
  if (again.content_hash() != tokenizer.content_hash()) std::abort();
}

void encode_text(std::string_view text) {
  static const Tokenizer tokenizers[] = {learn("gpt2"), learn("llama3"), learn("deepseek-v3")};
  for (const Tokenizer& tokenizer : tokenizers)
    for (const bool parse : {false, true}) {
      const auto ids = tokenizer.encode(text, {.parse_special = parse});
      if (tokenizer.decode_bytes(ids) != text) std::abort();
      StreamDecoder stream(tokenizer);
      std::string joined;
      for (const int32_t id : ids) joined += stream.push(id);
      if (joined + stream.finish() != tokenizer.decode(ids)) std::abort();
    }
}

void split_by_pattern(std::string_view input) {
  const size_t end = input.find('\0');
  if (end == std::string_view::npos) return;
  TokenizerSpec spec = learn("gpt2").spec();
  set_pattern(spec, input.substr(0, end));
  const Tokenizer tokenizer = Tokenizer::from_spec(spec);
  const std::string_view text = input.substr(end + 1);
  if (tokenizer.decode_bytes(tokenizer.encode(text)) != text) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0:
        read_json(input);
        break;
      case 1:
        encode_text(input);
        break;
      case 3:
        read_sentencepiece(input);
        break;
      default:
        split_by_pattern(input);
        break;
    }
  } catch (const Error&) {  // what a hostile file deserves
  }
  return 0;
}
