// write_tokenizer_json(): the canonical text of a TokenizerSpec, which Hugging Face's library loads. Its hash
// names the tokenizer, so equal specs give equal bytes.
#include <map>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

Json byte_level_step(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json split_step(const SplitRule& rule) {
  if (rule.kind == SplitRule::Kind::digits)
    return {{"type", "Digits"}, {"individual_digits", rule.behavior == SplitBehavior::isolated}};
  const char* kind = rule.kind == SplitRule::Kind::regex ? "Regex" : "String";
  return {{"type", "Split"},
          {"pattern", {{kind, rule.pattern}}},
          {"behavior", name_of(rule.behavior)},
          {"invert", rule.invert}};
}

bool is_metaspace(SpaceRule rule) {
  return rule != SpaceRule::replace && rule != SpaceRule::prepend;
}

Json replace_step(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json normalizer(const TokenizerSpec& spec) {
  if (!spec.over_characters()) return spec.nfc ? Json{{"type", "NFC"}} : Json(nullptr);
  if (is_metaspace(spec.spaces)) return nullptr;
  Json replace = replace_step(" ", kSpaceMark);
  if (spec.spaces == SpaceRule::replace) return replace;
  return {{"type", "Sequence"},
          {"normalizers", Json::array({Json{{"type", "Prepend"}, {"prepend", kSpaceMark}}, replace})}};
}

Json character_pre_tokenizer(const TokenizerSpec& spec) {
  Json steps = Json::array();
  size_t first = 0;
  if (is_metaspace(spec.spaces)) {
    first = !spec.splits.empty() && spec.splits[0].kind == SplitRule::Kind::literal &&
                    spec.splits[0].pattern == kSpaceMark
                ? 1
                : 0;
    const char* scheme = spec.spaces == SpaceRule::metaspace_never   ? "never"
                         : spec.spaces == SpaceRule::metaspace_first ? "first"
                                                                     : "always";
    steps.push_back({{"type", "Metaspace"},
                     {"replacement", kSpaceMark},
                     {"prepend_scheme", scheme},
                     {"split", first == 1}});
  }
  for (size_t i = first; i < spec.splits.size(); ++i) steps.push_back(split_step(spec.splits[i]));
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

Json character_decoder(const TokenizerSpec& spec) {
  Json steps =
      Json::array({replace_step(kSpaceMark, " "), Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  if (spec.strip_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

Json pre_tokenizer(const TokenizerSpec& spec) {
  if (spec.over_characters()) return character_pre_tokenizer(spec);
  Json last = byte_level_step(spec.add_prefix_space, spec.gpt2_split);
  if (spec.splits.empty()) return last;
  Json steps = Json::array();
  for (const SplitRule& rule : spec.splits) steps.push_back(split_step(rule));
  steps.push_back(std::move(last));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

Json post_processor(const TokenizerSpec& spec) {
  if (spec.template_bos < 0 && spec.template_eos < 0) return nullptr;
  Json single = Json::array();
  Json pair = Json::array();
  std::map<std::string, Json> tokens;
  const auto add_token = [&](int32_t id) {
    if (id < 0) return;
    std::string content;
    for (const AddedToken& t : spec.added_tokens)
      if (t.id == id) content = t.content;
    if (content.empty()) content = spec.vocabulary[static_cast<size_t>(id)];
    tokens[content] = {{"id", content}, {"ids", Json::array({id})}, {"tokens", Json::array({content})}};
    single.push_back({{"SpecialToken", {{"id", content}, {"type_id", 0}}}});
  };
  add_token(spec.template_bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add_token(spec.template_eos);
  pair = single;  // the second text like the first
  for (const Json& item : single) {
    Json second = item;
    auto& body = second.begin().value();
    body["type_id"] = 1;
    if (second.contains("Sequence")) body["id"] = "B";
    pair.push_back(second);
  }
  Json special = Json::object();
  for (auto& [content, token] : tokens) special[content] = std::move(token);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

Json model(const TokenizerSpec& spec) {
  if (spec.model == TokenizerSpec::Model::chars) return {{"type", "char"}, {"vocab", spec.vocabulary}};
  if (spec.model == TokenizerSpec::Model::unigram) {
    Json vocab = Json::array();
    for (size_t id = 0; id < spec.vocabulary.size(); ++id)
      vocab.push_back(Json::array({spec.vocabulary[id], spec.scores[id]}));
    return {{"type", "Unigram"},
            {"unk_id", spec.unknown >= 0 ? Json(spec.unknown) : Json(nullptr)},
            {"vocab", std::move(vocab)},
            {"byte_fallback", true}};
  }
  const bool fallback = spec.model == TokenizerSpec::Model::character_bpe;
  // HF reads an object in any order and writes it by id; so do we.
  Json vocab = Json::object();
  auto& members = vocab.get_ref<Json::object_t&>();
  members.reserve(spec.vocabulary.size());
  for (size_t id = 0; id < spec.vocabulary.size(); ++id)
    if (!spec.vocabulary[id].empty()) members.emplace_back(spec.vocabulary[id], id);  // tokens are distinct
  Json merges = Json::array();
  for (const auto& [left, right] : spec.merges)
    merges.push_back(
        {spec.vocabulary[static_cast<size_t>(left)], spec.vocabulary[static_cast<size_t>(right)]});
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", fallback},
          {"byte_fallback", fallback},
          {"ignore_merges", spec.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string write_tokenizer_json(const TokenizerSpec& spec) {
  const bool chars = spec.model == TokenizerSpec::Model::chars;
  Json added = Json::array();
  for (const AddedToken& t : spec.added_tokens)
    added.push_back({{"id", t.id},
                     {"content", t.content},
                     {"single_word", t.single_word},
                     {"lstrip", t.strip_left},
                     {"rstrip", t.strip_right},
                     {"normalized", t.normalized},
                     {"special", t.special}});
  Json root = {
      {"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", std::move(added)}};
  root["normalizer"] = normalizer(spec);
  root["pre_tokenizer"] = chars ? Json(nullptr) : pre_tokenizer(spec);
  root["post_processor"] = post_processor(spec);
  root["decoder"] = chars                    ? Json(nullptr)
                    : spec.over_characters() ? character_decoder(spec)
                                             : byte_level_step(true, true);
  root["model"] = model(spec);
  return root.dump(2);
}

}  // namespace ingot
