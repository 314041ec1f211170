// See added_tokens.h. A trie walked from every position whose byte starts some token.
#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace ingot {

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

}  // namespace ingot
