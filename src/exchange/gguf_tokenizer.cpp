// See gguf_tokenizer.h.
#include "exchange/gguf_tokenizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/utf8.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

/// Texts and types by id.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

Tokens tokens_of(const TokenizerSpec& spec, int64_t vocab) {
  const auto size = static_cast<size_t>(vocab);
  Tokens t{spec.vocabulary, std::vector<int32_t>(spec.vocabulary.size(), kNormal)};
  t.texts.resize(size);
  t.types.resize(size, kUnused);
  if (spec.over_characters())
    for (size_t i = 0; i < size; ++i)
      if (fallback_byte(t.texts[i]) >= 0) t.types[i] = kByte;
  for (const AddedToken& a : spec.added_tokens) {
    t.texts[static_cast<size_t>(a.id)] = a.content;
    t.types[static_cast<size_t>(a.id)] = !a.special                                       ? kUserDefined
                                         : spec.over_characters() && a.content == "<unk>" ? kUnknown
                                                                                          : kControl;
  }
  for (size_t i = 0; i < size; ++i)  // rows of the embedding beyond the tokenizer
    if (t.texts[i].empty()) t.texts[i] = fmt::format("[PAD{}]", i), t.types[i] = kUnused;
  return t;
}

/// llama.cpp's name of how a tokenizer over bytes splits text.
std::string pre_tokenizer_of(const TokenizerSpec& spec) {
  for (const auto& [ours, theirs] : {std::pair<const char*, const char*>{"gpt2", "gpt-2"},
                                     {"llama3", "llama-bpe"},
                                     {"qwen2", "qwen2"},
                                     {"o200k", "gpt-4o"},
                                     {"digits", "smollm"},
                                     {"deepseek-v3", "deepseek-v3"}}) {
    TokenizerSpec known;
    set_pattern(known, ours);
    if (known.splits == spec.splits && known.gpt2_split == spec.gpt2_split && !spec.add_prefix_space)
      return theirs;
  }
  throw Error("llama.cpp does not know how this tokenizer splits text, and a GGUF file cannot say it",
              "it knows the patterns gpt2, llama3, qwen2, o200k, digits and deepseek-v3");
}

void add_bytes(GgufWriter& w, const TokenizerSpec& spec, std::vector<std::string>& notes) {
  std::vector<std::string> merges;
  for (const auto& [a, b] : spec.merges)
    merges.push_back(spec.vocabulary[static_cast<size_t>(a)] + " " + spec.vocabulary[static_cast<size_t>(b)]);
  const std::string pre = pre_tokenizer_of(spec);
  if (spec.ignore_merges != (pre == "llama-bpe"))
    notes.push_back(
        fmt::format("llama.cpp's '{}' {} merges for words that are tokens; ids may differ for such words",
                    pre, pre == "llama-bpe" ? "ignores" : "applies"));
  w.add("tokenizer.ggml.model", std::string("gpt2"));
  w.add("tokenizer.ggml.pre", pre);
  w.add("tokenizer.ggml.merges", merges);
}

/// llama.cpp joins the neighbours whose joint token has the highest score, whatever the merges say. With
/// minus the rank of its first merge as a token's score, that is the order of the merges, as long as those of
/// one token stand together (so transformers writes them) and every token of two characters or more has one.
std::vector<float> scores_of(const TokenizerSpec& spec, const Tokens& tokens,
                             std::vector<std::string>& notes) {
  constexpr float kNever = -1e9f;
  std::vector<float> scores(tokens.texts.size(), kNever);
  std::map<std::string_view, size_t> ids;
  for (size_t i = 0; i < spec.vocabulary.size(); ++i) ids.emplace(spec.vocabulary[i], i);
  size_t last = scores.size();
  std::set<size_t> apart;  // tokens for which that does not hold
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [a, b] = spec.merges[rank];
    const auto id =
        ids.find(spec.vocabulary[static_cast<size_t>(a)] + spec.vocabulary[static_cast<size_t>(b)]);
    INGOT_CHECK(id != ids.end(), "merge {} makes no token", rank);
    if (scores[id->second] == kNever)
      scores[id->second] = -static_cast<float>(rank);
    else if (last != id->second)
      apart.insert(id->second);
    last = id->second;
  }
  for (size_t i = 0; i < spec.vocabulary.size(); ++i)
    if (tokens.types[i] == kNormal && scores[i] == kNever &&
        utf8::decode(tokens.texts[i]).length < tokens.texts[i].size())
      apart.insert(i);
  if (!apart.empty())
    notes.push_back(fmt::format(
        "llama.cpp ranks tokens where this tokenizer ranks merges: for {} tokens, such as '{}', ids "
        "may differ",
        apart.size(), tokens.texts[*apart.begin()]));
  return scores;
}

void add_characters(GgufWriter& w, const TokenizerSpec& spec, const Tokens& tokens,
                    std::vector<std::string>& notes) {
  for (const SplitRule& s : spec.splits)  // spaces are marks by then: such a rule finds none
    if (s.kind != SplitRule::Kind::literal || s.pattern != " ")
      throw Error("llama.cpp does not split text for tokenizers with byte fallback, this one does",
                  "export with --format=hf");
  const bool prefix = spec.spaces != SpaceRule::replace && spec.spaces != SpaceRule::metaspace_never;
  if (prefix && spec.spaces != SpaceRule::prepend)
    notes.push_back(fmt::format(
        "llama.cpp puts a space in front of text and behind every control token; this tokenizer "
        "{}: ids may differ there",
        spec.spaces == SpaceRule::metaspace_first ? "only at the beginning, and where there is none"
                                                  : "only where there is none"));
  w.add("tokenizer.ggml.model", std::string("llama"));
  w.add("tokenizer.ggml.pre", std::string("default"));
  w.add("tokenizer.ggml.scores", scores_of(spec, tokens, notes));
  w.add_flag("tokenizer.ggml.add_space_prefix", prefix);
  for (size_t i = 0; i < tokens.types.size(); ++i)
    if (tokens.types[i] == kUnknown) w.add("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(i));
}

}  // namespace

void add_gguf_tokenizer_keys(GgufWriter& w, const Tokenizer& t, int64_t vocab,
                             const std::string& chat_template, std::vector<std::string>& notes) {
  const TokenizerSpec& spec = t.spec();
  if (spec.model == TokenizerSpec::Model::chars)
    throw Error("a character tokenizer has no counterpart in llama.cpp",
                "train with tokenizer.kind = \"bpe\"");
  if (spec.model == TokenizerSpec::Model::unigram)
    throw Error("unigram tokenizers are not written to GGUF files",
                "export with --format=hf and convert with llama.cpp's own script");
  const Tokens tokens = tokens_of(spec, vocab);
  if (spec.over_characters())
    add_characters(w, spec, tokens, notes);
  else
    add_bytes(w, spec, notes);
  if (spec.nfc)
    notes.push_back(
        "llama.cpp does not normalise text (NFC); ids may differ for text that is not normalised");
  const auto strips =
      std::find_if(spec.added_tokens.begin(), spec.added_tokens.end(),
                   [](const AddedToken& a) { return a.strip_left || a.strip_right || a.single_word; });
  if (strips != spec.added_tokens.end())
    notes.push_back(
        fmt::format("llama.cpp takes tokens such as '{}' as they stand; this tokenizer heeds the white space "
                    "and letters beside them",
                    strips->content));
  w.add("tokenizer.ggml.tokens", tokens.texts);
  w.add("tokenizer.ggml.token_type", tokens.types);
  const std::optional<int32_t> begin = t.begin_token() ? t.begin_token() : t.roles().bos;
  for (const auto& [name, id] : {std::pair<const char*, std::optional<int32_t>>{"bos", begin},
                                 {"eos", t.roles().eos},
                                 {"padding", t.roles().pad}})
    if (id) w.add(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(*id));
  w.add_flag("tokenizer.ggml.add_bos_token", t.begin_token().has_value());
  if (!chat_template.empty()) w.add("tokenizer.chat_template", chat_template);
}

}  // namespace ingot
