// parse_tokenizer_json(): the text of a tokenizer.json to a TokenizerSpec. Strict: a setting that would
// change ids and that this program does not do is refused by name. Layout: huggingface/tokenizers
// tokenizer/serialization.rs.
#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json_depth.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 1 << 24;
constexpr size_t kMaxAddedBytes = 1024;  // of one added token: bounds the work per byte of text
constexpr int kMaxNesting = 4;           // Sequence inside Sequence

class Reader {
 public:
  Reader(const json& root, const std::string& name) : root_(root), name_(name) {}
  TokenizerSpec read();

 private:
  [[noreturn]] void refuse(const std::string& field, const std::string& what) const {
    throw Error(fmt::format("'{}': {}: {}", name_, field, what),
                "Ingot reads BPE tokenizers, over bytes or with byte fallback, and unigram ones with byte "
                "fallback, as Hugging Face's tokenizers library writes them; see docs/tokenizer.md for the "
                "settings it knows");
  }
  static std::string show(const json& value) {
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() <= 80 ? text : text.substr(0, 77) + "...";
  }
  void keys(const json& object, const std::string& field,
            std::initializer_list<std::string_view> known) const {
    if (!object.is_object()) refuse(field, "expected an object, found " + show(object));
    for (const auto& item : object.items())
      if (std::find(known.begin(), known.end(), item.key()) == known.end())
        refuse(field + "." + item.key(), "unknown setting");
  }
  /// The member, or null where it is absent.
  static const json& member(const json& object, const char* key) {
    static const json null;
    const auto it = object.find(key);
    return it == object.end() ? null : *it;
  }
  bool boolean(const json& object, const std::string& field, const char* key, bool otherwise) const {
    const json& value = member(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(field + "." + key, "expected true or false, found " + show(value));
    return value.get<bool>();
  }
  std::string text(const json& object, const std::string& field, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_string()) refuse(field + "." + key, "expected a string, found " + show(value));
    return value.get<std::string>();
  }
  int32_t id(const json& value, const std::string& field) const {
    if (!value.is_number_integer() || value.is_number_float())
      refuse(field, "expected an id, found " + show(value));
    if (value.is_number_unsigned() ? value.get<uint64_t>() >= static_cast<uint64_t>(kMaxId) : true)
      refuse(field, fmt::format("id {} is not in 0 .. {}", show(value), kMaxId - 1));
    return static_cast<int32_t>(value.get<uint64_t>());
  }
  void must_be_off(const json& object, const std::string& field, const char* key) const {
    const json& value = member(object, key);
    const bool off = value.is_null() || value == json(false) || value == json("") || value == json(0.0);
    if (!off) refuse(field + "." + key, "is " + show(value) + ", which Ingot does not do");
  }

  void read_model(const json& model);
  void read_vocabulary(const json& vocab);
  void read_merges(const json& merges);
  void read_characters(const json& vocab);
  void read_unigram(const json& model);
  void read_added_tokens(const json& list);
  void read_normalizer(const json& normalizer, const std::string& field, int depth);
  void read_space_normalizer(const json& normalizer, const std::string& field, const std::string& type);
  void read_pre_tokenizer(const json& step, const std::string& field, int depth);
  void read_metaspace(const json& step, const std::string& field);
  void read_decoder(const json& decoder);
  void read_character_decoder(const json& step, const std::string& field, int depth);
  void read_split(const json& step, const std::string& field);
  void read_byte_level(const json& step, const std::string& field);
  void read_post_processor(const json& step, const std::string& field, int depth);
  void read_template(const json& step, const std::string& field);
  int32_t template_id(const json& step, const json& item, const std::string& field) const;
  int32_t& template_slot(bool after_text) { return after_text ? spec_.template_eos : spec_.template_bos; }

  const json& root_;
  const std::string& name_;
  TokenizerSpec spec_;
  std::unordered_map<std::string, int32_t> id_of_;
  bool byte_level_seen_ = false;
  bool prepends_ = false, replaces_ = false, metaspace_ = false;  // over characters: what makes the marks
  bool fuses_ = false;
};

TokenizerSpec Reader::read() {
  keys(root_, "tokenizer",
       {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
        "decoder", "model"});
  if (const json& version = member(root_, "version"); version != json("1.0"))
    refuse("version", "expected \"1.0\", found " + show(version));
  must_be_off(root_, "tokenizer", "truncation");
  must_be_off(root_, "tokenizer", "padding");
  read_model(member(root_, "model"));
  read_added_tokens(member(root_, "added_tokens"));
  read_normalizer(member(root_, "normalizer"), "normalizer", 0);
  const bool bpe = spec_.model == TokenizerSpec::Model::bpe;
  const json& pre_tokenizer = member(root_, "pre_tokenizer");
  if (bpe) {
    read_pre_tokenizer(pre_tokenizer, "pre_tokenizer", 0);
    if (!byte_level_seen_) refuse("pre_tokenizer", "no ByteLevel step: not a byte-level tokenizer");
  } else if (spec_.over_characters()) {
    if (!pre_tokenizer.is_null()) read_pre_tokenizer(pre_tokenizer, "pre_tokenizer", 0);
    if (replaces_ == metaspace_)
      refuse("normalizer", "expected spaces to become U+2581, by Replace or by a Metaspace pre-tokenizer");
  } else {
    must_be_off(root_, "tokenizer", "pre_tokenizer");
  }
  read_post_processor(member(root_, "post_processor"), "post_processor", 0);
  read_decoder(member(root_, "decoder"));
  return std::move(spec_);
}

void Reader::read_decoder(const json& decoder) {
  if (spec_.model == TokenizerSpec::Model::chars) return must_be_off(root_, "tokenizer", "decoder");
  if (spec_.over_characters()) {
    read_character_decoder(decoder, "decoder", 0);
    if (!fuses_) refuse("decoder", "expected Replace, ByteFallback and Fuse, found " + show(decoder));
    return;
  }
  keys(decoder, "decoder", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (text(decoder, "decoder", "type") != "ByteLevel")
    refuse("decoder.type", "expected \"ByteLevel\", found " + show(decoder["type"]));
}

/// U+2581 to spaces, tokens of bytes to bytes, all in one text, of which one space in front may be taken.
void Reader::read_character_decoder(const json& step, const std::string& field, int depth) {
  if (depth > 1 || !step.is_object()) refuse(field, "expected a decoder, found " + show(step));
  const std::string type = text(step, field, "type");
  if (type == "Sequence") {
    keys(step, field, {"type", "decoders"});
    const json& list = member(step, "decoders");
    for (size_t i = 0; i < list.size() && list.is_array(); ++i)
      read_character_decoder(list[i], fmt::format("{}.decoders[{}]", field, i), depth + 1);
  } else if (type == "Replace") {
    keys(step, field, {"type", "pattern", "content"});
    if (member(step, "pattern") != json({{"String", kSpaceMark}}) || text(step, field, "content") != " ")
      refuse(field, "expected U+2581 to become a space, found " + show(step));
  } else if (type == "Metaspace") {
    keys(step, field, {"type", "replacement", "prepend_scheme", "split", "add_prefix_space"});
    fuses_ = true;
    spec_.strip_space = member(step, "prepend_scheme") != json("never");
  } else if (type == "Strip") {
    if (!fuses_ || step != json({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}))
      refuse(field, "expected one space to be taken from the front of the text, found " + show(step));
    spec_.strip_space = true;
  } else if (type == "Fuse") {
    fuses_ = true;
  } else if (type != "ByteFallback") {
    refuse(field + ".type", "is " + show(step["type"]) + ", which Ingot does not do");
  }
}

void Reader::read_model(const json& model) {
  if (!model.is_object()) refuse("model", "expected an object, found " + show(model));
  const json& type = member(model, "type");
  if (type == json("char")) {
    keys(model, "model", {"type", "vocab"});
    spec_.model = TokenizerSpec::Model::chars;
    return read_characters(member(model, "vocab"));
  }
  if (type == json("Unigram")) return read_unigram(model);
  if (!type.is_null() && type != json("BPE"))
    refuse("model.type", "expected \"BPE\", \"Unigram\" or \"char\", found " + show(type));
  keys(model, "model",
       {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
        "byte_fallback", "ignore_merges", "vocab", "merges"});
  // unk_token and fuse_unk cannot act: every byte has a token.
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    must_be_off(model, "model", key);
  if (boolean(model, "model", "byte_fallback", false)) spec_.model = TokenizerSpec::Model::character_bpe;
  spec_.ignore_merges = boolean(model, "model", "ignore_merges", false);
  read_vocabulary(member(model, "vocab"));
  read_merges(member(model, "merges"));
}

void Reader::read_vocabulary(const json& vocab) {
  if (!vocab.is_object() || vocab.empty()) refuse("model.vocab", "expected an object, found " + show(vocab));
  const size_t limit = vocab.size() * 4 + 4096;  // holes are legal, an id that makes a huge table is not
  for (const auto& item : vocab.items()) {
    const std::string field = "model.vocab['" + item.key() + "']";
    const int32_t token = id(item.value(), field);
    const auto at = static_cast<size_t>(token);
    if (item.key().empty()) refuse(field, "an empty token");
    if (at >= limit) refuse(field, fmt::format("id {} in a vocabulary of {} tokens", token, vocab.size()));
    if (at >= spec_.vocabulary.size()) spec_.vocabulary.resize(at + 1);
    if (!spec_.vocabulary[at].empty())
      refuse(field, fmt::format("id {} already belongs to '{}'", token, spec_.vocabulary[at]));
    spec_.vocabulary[at] = item.key();
    id_of_.emplace(item.key(), token);
  }
}

void Reader::read_merges(const json& merges) {
  if (!merges.is_array()) refuse("model.merges", "expected a list, found " + show(merges));
  const auto part = [&](const std::string& token, size_t rank) {
    const auto it = id_of_.find(token);
    if (it == id_of_.end())
      refuse(fmt::format("model.merges[{}]", rank), "part '" + token + "' is not in model.vocab");
    return it->second;
  };
  spec_.merges.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const json& m = merges[rank];
    if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
      spec_.merges.push_back({part(m[0].get<std::string>(), rank), part(m[1].get<std::string>(), rank)});
      continue;
    }
    const std::string line = m.is_string() ? m.get<std::string>() : "";
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      refuse(fmt::format("model.merges[{}]", rank), "expected [\"a\", \"b\"] or \"a b\", found " + show(m));
    spec_.merges.push_back({part(line.substr(0, space), rank), part(line.substr(space + 1), rank)});
  }
}

void Reader::read_unigram(const json& model) {
  keys(model, "model", {"type", "unk_id", "vocab", "byte_fallback"});
  spec_.model = TokenizerSpec::Model::unigram;
  if (!boolean(model, "model", "byte_fallback", false))
    refuse("model.byte_fallback",
           "is false: characters without a token would become one unknown token, which loses text");
  const json& vocab = member(model, "vocab");
  if (!vocab.is_array() || vocab.size() >= static_cast<size_t>(kMaxId))
    refuse("model.vocab", "expected a list, found " + show(vocab));
  for (size_t i = 0; i < vocab.size(); ++i) {
    const json& item = vocab[i];
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number() ||
        item[0].get_ref<const std::string&>().empty())
      refuse(fmt::format("model.vocab[{}]", i), "expected [\"token\", score], found " + show(item));
    spec_.vocabulary.push_back(item[0].get<std::string>());
    spec_.scores.push_back(item[1].get<double>());
    if (!id_of_.emplace(spec_.vocabulary.back(), static_cast<int32_t>(i)).second)
      refuse(fmt::format("model.vocab[{}]", i), "'" + spec_.vocabulary.back() + "' occurs twice");
  }
  if (const json& unknown = member(model, "unk_id"); !unknown.is_null())
    spec_.unknown = id(unknown, "model.unk_id");
  if (spec_.unknown >= static_cast<int32_t>(vocab.size())) refuse("model.unk_id", "is no token");
}

void Reader::read_characters(const json& vocab) {
  if (!vocab.is_array()) refuse("model.vocab", "expected a list of characters, found " + show(vocab));
  for (size_t i = 0; i < vocab.size(); ++i) {
    if (!vocab[i].is_string())
      refuse(fmt::format("model.vocab[{}]", i), "expected a string, found " + show(vocab[i]));
    spec_.vocabulary.push_back(vocab[i].get<std::string>());
    id_of_.emplace(spec_.vocabulary.back(), static_cast<int32_t>(i));
  }
}

void Reader::read_added_tokens(const json& list) {
  if (list.is_null()) return;
  if (!list.is_array()) refuse("added_tokens", "expected a list, found " + show(list));
  const size_t limit = (id_of_.size() + list.size()) * 4 + 4096;
  auto next = static_cast<int32_t>(id_of_.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string field = fmt::format("added_tokens[{}]", i);
    const json& item = list[i];
    keys(item, field, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.single_word = boolean(item, field, "single_word", false);
    token.strip_left = boolean(item, field, "lstrip", false);
    token.strip_right = boolean(item, field, "rstrip", false);
    token.id = id(member(item, "id"), field + ".id");
    if (static_cast<size_t>(token.id) >= limit)
      refuse(field + ".id", fmt::format("{} leaves a huge hole", token.id));
    token.content = text(item, field, "content");
    if (token.content.empty() || token.content.size() > kMaxAddedBytes)
      refuse(field + ".content",
             fmt::format("has {} bytes, expected 1 to {}", token.content.size(), kMaxAddedBytes));
    token.special = boolean(item, field, "special", false);
    token.normalized = boolean(item, field, "normalized", !token.special);
    const auto known = id_of_.find(token.content);
    if (known != id_of_.end() && known->second != token.id)
      refuse(field, fmt::format("'{}' has id {}, but {} elsewhere", token.content, token.id, known->second));
    if (known == id_of_.end() && token.id != next && spec_.model != TokenizerSpec::Model::chars)
      refuse(field + ".id",
             fmt::format("'{}' has id {}, but the tokenizers library counts on and gives it {}",
                         token.content, token.id, next));
    next = std::max(next, token.id + 1);
    id_of_.emplace(token.content, token.id);
    spec_.added_tokens.push_back(std::move(token));
  }
  std::sort(spec_.added_tokens.begin(), spec_.added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

void Reader::read_normalizer(const json& normalizer, const std::string& field, int depth) {
  if (normalizer.is_null()) return;
  if (depth > kMaxNesting || !normalizer.is_object())
    refuse(field, "expected a normalizer, found " + show(normalizer));
  const std::string type = text(normalizer, field, "type");
  if (type == "Sequence") {
    keys(normalizer, field, {"type", "normalizers"});
    for (const json& n : member(normalizer, "normalizers"))
      read_normalizer(n, field + ".normalizers", depth + 1);
    return;
  }
  if (spec_.over_characters()) return read_space_normalizer(normalizer, field, type);
  if (type != "NFC" || spec_.model != TokenizerSpec::Model::bpe)
    refuse(field + ".type", "is " + show(normalizer["type"]) + ", which Ingot does not do");
  keys(normalizer, field, {"type"});
  spec_.nfc = true;
}

/// The marks of spaces: Prepend, then Replace, or Replace alone.
void Reader::read_space_normalizer(const json& normalizer, const std::string& field,
                                   const std::string& type) {
  if (type == "Prepend" && !prepends_ && !replaces_) {
    keys(normalizer, field, {"type", "prepend"});
    if (text(normalizer, field, "prepend") != kSpaceMark)
      refuse(field + ".prepend", "expected U+2581, found " + show(normalizer["prepend"]));
    prepends_ = true;
    return;
  }
  if (type != "Replace" || replaces_)
    refuse(field + ".type", "is " + show(normalizer["type"]) + ", which Ingot does not do here");
  keys(normalizer, field, {"type", "pattern", "content"});
  if (member(normalizer, "pattern") != json({{"String", " "}}) ||
      text(normalizer, field, "content") != kSpaceMark)
    refuse(field, "expected spaces to become U+2581, found " + show(normalizer));
  replaces_ = true;
  spec_.spaces = prepends_ ? SpaceRule::prepend : SpaceRule::replace;
}

/// The same as a pre-tokenizer.
void Reader::read_metaspace(const json& step, const std::string& field) {
  keys(step, field, {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  if (!spec_.over_characters() || metaspace_ || replaces_ || prepends_ || !spec_.splits.empty())
    refuse(field, "a Metaspace step that is not the only one to mark spaces, before splits");
  if (text(step, field, "replacement") != kSpaceMark)
    refuse(field + ".replacement", "expected U+2581, found " + show(step["replacement"]));
  const json& scheme = member(step, "prepend_scheme");
  if (scheme == json("never"))
    spec_.spaces = SpaceRule::metaspace_never;
  else if (scheme == json("first"))
    spec_.spaces = SpaceRule::metaspace_first;
  else if (scheme == json("always") || (scheme.is_null() && member(step, "add_prefix_space") != json(false)))
    spec_.spaces = SpaceRule::metaspace_always;
  else
    refuse(field + ".prepend_scheme", "expected never, first or always, found " + show(scheme));
  metaspace_ = true;
  if (boolean(step, field, "split", true))
    spec_.splits.push_back(
        {SplitRule::Kind::literal, std::string(kSpaceMark), SplitBehavior::merged_with_next, false});
}

void Reader::read_pre_tokenizer(const json& step, const std::string& field, int depth) {
  if (depth > kMaxNesting || !step.is_object())
    refuse(field, "expected a pre-tokenizer, found " + show(step));
  const std::string type = text(step, field, "type");
  if (type == "Sequence") {
    keys(step, field, {"type", "pretokenizers"});
    const json& list = member(step, "pretokenizers");
    if (!list.is_array()) refuse(field + ".pretokenizers", "expected a list, found " + show(list));
    for (size_t i = 0; i < list.size(); ++i)
      read_pre_tokenizer(list[i], fmt::format("{}.pretokenizers[{}]", field, i), depth + 1);
    return;
  }
  if (byte_level_seen_) refuse(field, "a step after ByteLevel");
  if (type == "Metaspace") return read_metaspace(step, field);
  if (type == "ByteLevel" && !spec_.over_characters()) return read_byte_level(step, field);
  if (type == "Split") return read_split(step, field);
  if (type != "Digits") refuse(field + ".type", "is " + show(step["type"]) + ", which Ingot does not do");
  keys(step, field, {"type", "individual_digits"});
  SplitRule rule;
  rule.kind = SplitRule::Kind::digits;
  const bool individual = boolean(step, field, "individual_digits", false);
  rule.behavior = individual ? SplitBehavior::isolated : SplitBehavior::contiguous;
  spec_.splits.push_back(rule);
}

void Reader::read_split(const json& step, const std::string& field) {
  keys(step, field, {"type", "pattern", "behavior", "invert"});
  const json& pattern = member(step, "pattern");
  keys(pattern, field + ".pattern", {"Regex", "String"});
  if (pattern.size() != 1)
    refuse(field + ".pattern", "expected \"Regex\" or \"String\", found " + show(pattern));
  SplitRule rule;
  rule.kind = pattern.contains("Regex") ? SplitRule::Kind::regex : SplitRule::Kind::literal;
  rule.pattern = text(pattern, field + ".pattern", pattern.contains("Regex") ? "Regex" : "String");
  static const std::pair<const char*, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  const std::string behavior = text(step, field, "behavior");
  const auto known = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                  [&](const auto& b) { return behavior == b.first; });
  if (known == std::end(kBehaviors))
    refuse(field + ".behavior", "unknown behavior " + show(step["behavior"]));
  rule.behavior = known->second;
  rule.invert = boolean(step, field, "invert", false);
  if (replaces_ && rule.kind == SplitRule::Kind::literal && rule.pattern == " " && !rule.invert)
    return;  // Gemma's: no space is left to split at
  spec_.splits.push_back(std::move(rule));
}

void Reader::read_byte_level(const json& step, const std::string& field) {
  keys(step, field, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  spec_.add_prefix_space = boolean(step, field, "add_prefix_space", true);
  spec_.gpt2_split = boolean(step, field, "use_regex", true);
  byte_level_seen_ = true;
  if (spec_.add_prefix_space && !spec_.splits.empty())
    refuse(field + ".add_prefix_space", "is true after other splits, which Ingot does not do");
}

void Reader::read_post_processor(const json& step, const std::string& field, int depth) {
  if (step.is_null()) return;
  if (depth > kMaxNesting || !step.is_object())
    refuse(field, "expected a post-processor, found " + show(step));
  const std::string type = text(step, field, "type");
  if (type == "ByteLevel") return;  // changes offsets only
  if (type == "TemplateProcessing") return read_template(step, field);
  if (type != "Sequence") refuse(field + ".type", "is " + show(step["type"]) + ", which Ingot does not do");
  keys(step, field, {"type", "processors"});
  for (const json& p : member(step, "processors")) read_post_processor(p, field + ".processors", depth + 1);
}

void Reader::read_template(const json& step, const std::string& field) {
  keys(step, field, {"type", "single", "pair", "special_tokens"});
  const json& single = member(step, "single");
  bool after_text = false;
  for (const json& item : single) {
    if (item.is_object() && item.contains("Sequence") && !after_text) {
      after_text = true;
      continue;
    }
    if (!item.is_object() || !item.contains("SpecialToken") || template_slot(after_text) >= 0)
      refuse(field + ".single",
             "expected at most one token before and one after the text, found " + show(single));
    template_slot(after_text) = template_id(step, item["SpecialToken"], field);
  }
  if (!after_text) refuse(field + ".single", "the text itself is missing: " + show(single));
}

int32_t Reader::template_id(const json& step, const json& item, const std::string& field) const {
  if (!item.is_object()) refuse(field + ".single", "expected a token, found " + show(item));
  const std::string content = text(item, field + ".single", "id");
  const auto it = id_of_.find(content);
  if (it == id_of_.end()) refuse(field + ".single", "'" + content + "' is not a token of this tokenizer");
  const json& tokens = member(step, "special_tokens");
  const json& declared = tokens.is_object() ? member(tokens, content.c_str()) : tokens;
  if (!declared.is_object() || member(declared, "ids") != json::array({it->second}))
    refuse(field + ".special_tokens['" + content + "']",
           fmt::format("expected ids [{}], found {}", it->second, show(declared)));
  return it->second;
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name) {
  require_shallow_json(text, name);
  json root;
  try {
    root = json::parse(text.begin(), text.end());
  } catch (const json::exception& e) {
    throw Error(fmt::format("'{}' is not valid JSON: {}", name, e.what()),
                "the file is damaged or not a tokenizer.json");
  }
  return Reader(root, name).read();
}

}  // namespace ingot
