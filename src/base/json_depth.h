// A bound on the depth of JSON from outside: a parsed value is printed and copied by recursion, which a hostile file could
// drive through the stack.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

/// Error that names `where` if objects and arrays nest deeper than 64. What else is wrong with the text is the parser's.
void require_shallow_json(std::string_view text, const std::string& where);

}  // namespace ingot
