// See newer_characters.h.
#include "tokenizer/newer_characters.h"

#include <algorithm>

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

}  // namespace

std::string with_known_characters(std::string_view text) {
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0xE0) {  // the newer ones have three bytes or four
      ++at;
      continue;
    }
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
