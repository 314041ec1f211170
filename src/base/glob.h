// Name patterns: a glob matches a whole name; '*' stands for any characters, '?' for any one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

bool glob_match(std::string_view pattern, std::string_view name);

/// Up to three names that come nearest to a pattern that matches none, quoted, for a message.
std::string nearest_to_pattern(std::string_view pattern, const std::vector<std::string>& names);

}  // namespace ingot
