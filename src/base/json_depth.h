// A bound on the depth of JSON from outside. Printing and copying a parsed value are recursive, so a hostile
// file could overflow the stack.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

/// Throws an Error that names `where` if objects and arrays nest deeper than 64. The parser finds every other
/// fault of the text.
void require_shallow_json(std::string_view text, const std::string& where);

}  // namespace ingot
