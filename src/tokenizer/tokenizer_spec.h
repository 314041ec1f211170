// What a tokenizer is, as plain data: the content of a tokenizer.json, without compiled tables. The reader
// makes one, the trainers make one, the writer prints one, Tokenizer compiles one.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"

namespace ingot {

/// What becomes of the parts that a split pattern matches (huggingface/tokenizers, SplitDelimiterBehavior).
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
constexpr auto enum_names(SplitBehavior) {
  return names_in_order<SplitBehavior>("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                       "Contiguous");
}

/// One step of pre-tokenization.
struct SplitRule {
  enum class Kind { regex, literal, digits };  ///< digits: every \p{N}, or runs of them when contiguous
  Kind kind = Kind::regex;
  std::string pattern;  ///< empty for digits
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< what does not match is the delimiter
  bool operator==(const SplitRule&) const = default;
};

/// A token that is found in the text before any splitting.
struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = true;       ///< control token: absent from plain text, may be left out of decoded text
  bool normalized = false;   ///< looked for after normalization instead of before
  bool single_word = false;  ///< only where no letter, digit or underscore touches it
  bool strip_left = false;   ///< takes the white space before it
  bool strip_right = false;  ///< takes the white space behind it
  bool operator==(const AddedToken&) const = default;
};

/// How spaces reach the vocabulary of a model over characters, in which a space is U+2581.
enum class SpaceRule {
  replace,           ///< each becomes the mark (Gemma)
  prepend,           ///< and the text between added tokens gets one more in front (Llama 2)
  metaspace_never,   ///< as replace, written as a pre-tokenizer
  metaspace_first,   ///< and the whole text gets one in front, unless there is one
  metaspace_always,  ///< and the text between added tokens, unless there is one
};
/// U+2581, which stands for a space in vocabularies over characters.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

struct TokenizerSpec {
  /// bpe: over bytes; character_bpe: over characters, with tokens for the bytes of others (SentencePiece's
  /// BPE); unigram: the likeliest sequence of tokens, with such tokens too; chars: characters alone.
  enum class Model { bpe, character_bpe, unigram, chars };
  Model model = Model::bpe;
  bool over_characters() const { return model == Model::character_bpe || model == Model::unigram; }

  std::vector<AddedToken> added_tokens;  ///< ascending ids
  /// Token text by id; "" where the id belongs to an added token only. Byte-level BPE: written in the byte
  /// alphabet. Over characters: as it is, spaces as kSpaceMark, the token of a byte "<0x0A>". Characters: one
  /// character each, ascending code points.
  std::vector<std::string> vocabulary;

  // Models over characters only.
  SpaceRule spaces = SpaceRule::replace;
  bool strip_space = false;    ///< decoding takes one space from the front of the text
  std::vector<double> scores;  ///< unigram: log-probabilities by id
  int32_t unknown = -1;        ///< unigram: the token that the format asks for; is never made

  // BPE, and splits for models over characters too.
  std::vector<std::array<int32_t, 2>> merges;  ///< rank = position
  bool ignore_merges = false;     ///< a piece that is a token is that token, whatever the merges say
  bool nfc = false;               ///< Unicode normalization form C before splitting
  std::vector<SplitRule> splits;  ///< applied in order, before the byte-level step
  bool gpt2_split = false;        ///< the byte-level step splits by GPT-2's pattern
  bool add_prefix_space = false;  ///< text that does not begin with a space gets one
  int32_t template_bos = -1;      ///< post_processor template: token put before the text
  int32_t template_eos = -1;      ///< token put after it
  bool operator==(const TokenizerSpec&) const = default;
};

/// Reads the text of a tokenizer.json. Whatever this program does not do (a normalizer, a dropout, padding,
/// ...) is an Error that names the field; nothing is ignored, except settings that cannot change ids. `name`:
/// for messages.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name);

/// The canonical tokenizer.json of a spec: Hugging Face's layout, two-space indent, vocabulary by id, merges
/// as pairs.
std::string write_tokenizer_json(const TokenizerSpec& spec);

/// Reads a SentencePiece model file ("tokenizer.model") of type BPE or unigram with byte fallback, as
/// transformers converts it. Other types, normalisation rules and files without byte fallback are refused by
/// name.
TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& name);

/// The byte of "<0x0A>", or -1 for any other text.
int fallback_byte(std::string_view token);

/// The splitting that a well-known tokenizer uses: "gpt2", "llama3" (the same as "cl100k"), "qwen2", "o200k",
/// "nanochat", "deepseek-v3", "digits" (SmolLM's: digits one by one, then gpt2); any other text is taken as
/// one regular expression. Source: each published tokenizer.json.
void set_pattern(TokenizerSpec& spec, std::string_view name_or_regex);
/// The pattern that a `ByteLevel` pre-tokenizer with use_regex applies.
std::string_view gpt2_pattern();

}  // namespace ingot
