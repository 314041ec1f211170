// See json_depth.h.
#include "base/json_depth.h"

#include "base/error.h"

namespace ingot {

void require_shallow_json(std::string_view text, const std::string& where) {
  constexpr int kMaxDepth = 64;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (in_string)
      continue;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    if (depth > kMaxDepth) fail("'{}' is nested deeper than {}", where, kMaxDepth);
  }
}

}  // namespace ingot
