// The recipe's sections [tokenizer] and [data]: text sources and how they become rows of batches.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "base/config.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "data/source.h"

namespace ingot {

enum class TokenizerKind { bpe, characters };
constexpr auto enum_names(TokenizerKind) {
  return names_in_order<TokenizerKind>("bpe", "characters");
}

struct TokenizerConfig {
  TokenizerKind kind = TokenizerKind::bpe;
  std::string path;  ///< empty: trained on the sources, kept in the data folder
  int64_t vocab = 8192;
  std::string pattern = "gpt2";
  std::vector<std::string> special_tokens;
  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind, "bpe (byte-level), or characters");
    v("path", path, "an existing tokenizer (folder or tokenizer.json); empty: train one on the sources");
    v("vocab", vocab, "bpe: tokens to learn", between(1, bounds::kVocabulary));
    v("pattern", pattern,
      "bpe: pre-tokenizer pattern (gpt2, llama3, qwen2, digits: each digit alone, ..., or a regular "
      "expression)");
    v("special_tokens", special_tokens,
      "control tokens beside <|endoftext|>, which come first in the vocabulary, for example <|im_start|>");
  }
  void validate(ConfigErrors& e) const {
    if (kind == TokenizerKind::bpe && path.empty() && vocab < 257)
      e.add("vocab",
            "a byte-level vocabulary needs at least 257 tokens (256 bytes and end-of-text), found {}", vocab);
    else if (kind == TokenizerKind::bpe && path.empty() &&
             vocab < 257 + static_cast<int64_t>(special_tokens.size()))
      e.add("vocab", "256 bytes, end-of-text and {} special tokens need at least {} tokens, found {}",
            special_tokens.size(), 257 + special_tokens.size(), vocab);
    if (!path.empty() && !special_tokens.empty())
      e.add("special_tokens",
            "are for a tokenizer that is trained; an existing one gets more by `ingot tokenizer add`");
    for (size_t i = 0; i < special_tokens.size(); ++i)
      if (special_tokens[i].empty() ||
          std::find(special_tokens.begin(), special_tokens.begin() + static_cast<std::ptrdiff_t>(i),
                    special_tokens[i]) != special_tokens.begin() + static_cast<std::ptrdiff_t>(i))
        e.add("special_tokens", "\"{}\" is empty or occurs twice", special_tokens[i]);
  }
};

/// Whether rows with reasoning also count without it.
enum class ThinkingRows : uint8_t { as_written, both };
constexpr auto enum_names(ThinkingRows) {
  return names_in_order<ThinkingRows>("as_written", "both");
}

struct SourceConfig {
  std::string name;
  std::string path;
  data::DocumentSplit documents = data::DocumentSplit::whole_file;
  std::string marker = "<|endoftext|>";
  std::string field = "text";
  std::string prompt_field;
  bool conversations = false, preferences = false, each_turn = false;
  ThinkingRows thinking = ThinkingRows::as_written;
  bool tail_validation = false;
  double validation_fraction = 0.02;
  double weight = 1.0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "short name, used in metrics and folders");
    v("path", path, "text or .jsonl file, folder, or pattern");
    v("documents", documents, "how a text file divides: whole_file, blank_line or marker");
    v("marker", marker, "text between documents, for documents = marker");
    v("field", field, "field of a .jsonl row that holds the text");
    v("prompt_field", prompt_field,
      "field of a .jsonl row with text that comes first and is not in the loss; empty: none");
    v("conversations", conversations,
      "rows of a .jsonl file are conversations; what the assistant writes is in the loss "
      "(data.chat_template)");
    v("each_turn", each_turn,
      "conversations: a turn whose reasoning the template leaves out later is a row of its own");
    v("thinking", thinking,
      "conversations: as_written, or both: rows with reasoning also as rows without it, not thinking");
    v("preferences", preferences,
      "rows of a .jsonl file are preferences (chosen, rejected): of phases of that kind only");
    v("tail_validation", tail_validation, "hold out the last part of the text instead of documents by hash");
    v("validation_fraction", validation_fraction, "share held out for validation", below_one());
    v("weight", weight, "share in the mixture (relative); phases may override it", up_to(bounds::kWeight));
  }
  void validate(ConfigErrors& e) const {
    if (name.empty()) e.add("name", "must not be empty");
    if (path.empty()) e.add("path", "must not be empty");
    if (conversations && !prompt_field.empty())
      e.add("prompt_field", "belongs to rows with text, but conversations is true; remove one of both");
    if (preferences && (conversations || !prompt_field.empty()))
      e.add("preferences", "rows are one of preferences, conversations, and text behind a prompt_field");
    if (!conversations && (each_turn || thinking != ThinkingRows::as_written))
      e.add(each_turn ? "each_turn" : "thinking", "is of conversations");
    if ((conversations || preferences) && tail_validation)
      e.add("tail_validation", "would cut a conversation; hold out whole rows");
    if (tail_validation && !prompt_field.empty())
      e.add("tail_validation", "would split a row between its prompt and its answer; hold out whole rows");
  }
};

enum class SpecialText { text, parse };
constexpr auto enum_names(SpecialText) {
  return names_in_order<SpecialText>("text", "parse");
}

struct DataConfig {
  std::string folder = "data";  ///< tokenizer and token shards
  data::SampleMode sampling = data::SampleMode::stream;
  bool document_mask = true;
  bool drop_too_long = false;
  bool end_of_text = true;
  bool end_of_text_first = false;
  bool begin_of_text = false;
  SpecialText special_tokens = SpecialText::text;
  std::string chat_template;
  bool trust_text = false;
  std::vector<SourceConfig> sources;
  template <class Visitor>
  void visit(Visitor& v) {
    v("folder", folder, "where the tokenizer and the token shards are kept; reused by later runs");
    v.fixed("sampling", sampling,
            "stream: windows of the token stream, shuffled; best_fit: whole documents; random: nanoGPT");
    v.fixed("document_mask", document_mask, "attention and positions start anew at each document in a row");
    v.fixed("drop_too_long", drop_too_long,
            "best_fit: leave out documents that are longer than a sequence, instead of refusing the run");
    v.fixed("end_of_text", end_of_text, "append the end-of-text token to every document");
    v.fixed("end_of_text_first", end_of_text_first,
            "put end-of-text before each document instead (BOS style)");
    v.fixed("begin_of_text", begin_of_text,
            "put the tokenizer's begin-of-text token before every document, and before sample prompts");
    v.fixed(
        "special_tokens", special_tokens,
        "special tokens that the text spells, such as <|im_start|>: text like any other, or parse: tokens");
    v.fixed("chat_template", chat_template,
            "of conversations: a folder or file with the template, or a shipped one; empty: the tokenizer's "
            "folder");
    v.fixed(
        "trust_text", trust_text,
        "special tokens that messages spell become tokens, as transformers reads them; else they stay text");
    v("sources", sources, "text sources");
  }
  void validate(ConfigErrors& e) const {
    if (end_of_text_first && !end_of_text)
      e.add("end_of_text_first", "data.end_of_text is false: there is no token to stand first");
    if (end_of_text_first && begin_of_text)
      e.add("begin_of_text",
            "data.end_of_text_first already puts a token before each document; choose one of both");
    if (drop_too_long && sampling != data::SampleMode::best_fit)
      e.add("drop_too_long", "only sampling = \"best_fit\" keeps documents whole, found {}",
            name_of(sampling));
    for (size_t i = 0; i < sources.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (sources[j].name == sources[i].name)
          e.add(fmt::format("sources.{}.name", i), "'{}' names two sources", sources[i].name);
  }
  /// How rows of a batch are presented.
  data::RowOptions rows() const {
    data::RowOptions o{.document_mask = document_mask};
    if (end_of_text_first) o.mask_document_start = false;
    return o;
  }
};

}  // namespace ingot
