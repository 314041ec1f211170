// See added_tokens.h. A trie walked from every position whose byte starts some token.
#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/newer_characters.h"
#include "tokenizer/regex.h"

namespace ingot {
namespace {

/// Unicode's White_Space.
bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// Where the last character of `text` begins.
size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

/// Rust's \w, in which the tokenizers library looks: letters, marks, decimal digits, connectors, joiners.
bool begins_with_word(std::string_view text) {
  static const Regex word(
      R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
      R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}])");
  const utf8::Step step = utf8::decode(text);
  if (step.status != utf8::Status::valid) return false;
  text = text.substr(0, step.length);
  const std::string known = with_known_characters(text);
  RegexScratch scratch;
  scratch.begin_text(step.length);
  Regex::Match match;
  return word.match_at(known.empty() ? text : known, 0, scratch, match);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::span<const AddedToken> tokens) : nodes_(1) {
  for (size_t index = 0; index < tokens.size(); ++index) {
    uint32_t node = 0;
    for (const char c : tokens[index].content) {
      const auto byte = static_cast<uint8_t>(c);
      uint32_t next = node == 0 ? first_[byte] : child(node, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back();
        if (node == 0) {
          first_[byte] = next;
        } else {
          auto& children = nodes_[node].children;
          children.insert(std::lower_bound(children.begin(), children.end(), std::pair{byte, 0u}),
                          {byte, next});
        }
      }
      node = next;
    }
    nodes_[node].token = static_cast<int32_t>(index);
  }
}

uint32_t AddedTokenFinder::child(uint32_t node, uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto at = std::lower_bound(children.begin(), children.end(), std::pair{byte, 0u});
  return at != children.end() && at->first == byte ? at->second : 0;
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    uint32_t node = first_[static_cast<uint8_t>(text[begin])];
    Found found{begin, begin, -1};
    for (size_t end = begin + 1; node != 0; ++end) {
      if (nodes_[node].token >= 0) found = {begin, end, nodes_[node].token};
      node = end < text.size() ? child(node, static_cast<uint8_t>(text[end])) : 0;
    }
    if (found.index >= 0) return found;
  }
  return {text.size(), text.size(), -1};
}

AddedTokenFinder::Found AddedTokenFinder::extent(const AddedToken& token, std::string_view text, Found found,
                                                 size_t covered) {
  if (token.single_word) {
    const bool before =
        found.begin > 0 && begins_with_word(text.substr(last_character(text.substr(0, found.begin))));
    const bool behind = found.end < text.size() && begins_with_word(text.substr(found.end));
    if (before || behind) return {found.begin, found.end, -1};
  }
  while (token.strip_left && found.begin > covered) {
    const size_t at = last_character(text.substr(0, found.begin));
    const utf8::Step step = utf8::decode(text.substr(at, found.begin - at));
    if (step.status != utf8::Status::valid || at + step.length != found.begin || at < covered ||
        !is_white_space(step.code_point))
      break;
    found.begin = at;
  }
  while (token.strip_right && found.end < text.size()) {
    const utf8::Step step = utf8::decode(text.substr(found.end));
    if (step.status != utf8::Status::valid || !is_white_space(step.code_point)) break;
    found.end += step.length;
  }
  return found;
}

}  // namespace ingot
