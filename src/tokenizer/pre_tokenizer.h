// Cuts text into the pieces that BPE must not merge across: the split rules of a tokenizer, applied in order,
// each within the pieces of the one before (huggingface/tokenizers: Split, Digits, ByteLevel, Sequence).
#pragma once
#include <string_view>
#include <type_traits>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {

class PreTokenizer {
 public:
  /// Throws Error for a pattern that cannot be compiled.
  explicit PreTokenizer(const TokenizerSpec& spec);

  /// Calls body(piece) for every piece of `text` (valid UTF-8) from left to right; pieces are never empty.
  template <class Body>
  void split(std::string_view text, RegexScratch& scratch, Body&& body) const {
    using Fn = std::remove_reference_t<Body>;
    start(
        text, scratch, [](void* c, std::string_view piece) { (*static_cast<Fn*>(c))(piece); }, &body);
  }

 private:
  using Sink = void (*)(void* context, std::string_view piece);
  struct Stage {
    Regex regex;
    SplitBehavior behavior;
    bool invert;
    bool spells;  ///< the pattern spells its characters, newer ones too, so it must see the text itself
  };
  struct Range {
    size_t begin, end;
    bool is_match;
  };
  /// A text to split.
  struct Job {
    std::string_view text;
    std::string_view known;  ///< with the characters that the pattern engine knows (newer_characters.h)
    RegexScratch& scratch;
    Sink sink;
    void* context;
  };
  void start(std::string_view text, RegexScratch& scratch, Sink sink, void* context) const;
  /// Splits bytes [begin, end) by the stages from `stage` on.
  void run(size_t stage, const Job& job, size_t begin, size_t end) const;
  template <class Body>
  static void for_each_range(const Stage& stage, std::string_view text, RegexScratch& scratch, Body&& body);

  std::vector<Stage> stages_;
};

}  // namespace ingot
