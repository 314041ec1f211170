// See newer_characters.h.
#include "tokenizer/newer_characters.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace ingot {
namespace {

/// What patterns see instead of `c`; 0 if `c` itself.
uint32_t stand_in_of(uint32_t c) {
  const auto table = newer_ranges();
  const auto it = std::upper_bound(table.begin(), table.end(), c,
                                   [](uint32_t code, const NewerRange& r) { return code < r.begin; });
  return it != table.begin() && c <= std::prev(it)->end ? std::prev(it)->stand_in : 0;
}

/// The first byte from `at` on that begins a character of three bytes or four, as newer ones do; or the size.
size_t next_long_character(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & word << 1 & word << 2 & kHighBits) != 0) break;  // a byte with its three highest bits set
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0xE0) ++at;
  return at;
}

}  // namespace

std::string with_known_characters(std::string_view text) {
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; (at = next_long_character(text, at)) < text.size();) {
    const utf8::Step step = utf8::decode(text.substr(at));
    if (const uint32_t c = stand_in_of(step.code_point); c != 0) {
      out.append(text, copied, at - copied);
      utf8::append(out, c);
      copied = at + step.length;
    }
    at += step.length;
  }
  if (copied > 0) out.append(text, copied);
  return out;
}

}  // namespace ingot
