// Characters newer than the pattern engine: those of Unicode 15 and 16, which Hugging Face's library knows
// and PCRE2's tables (Unicode 14) call unassigned, as a pattern must see them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot {

/// `text` (valid UTF-8) with an older character of the same general category and as many bytes for each newer
/// one; "" where there is none.
std::string with_known_characters(std::string_view text);

// The generated table (newer_characters_table.cpp), ascending.
struct NewerRange {
  uint32_t begin, end;  ///< inclusive
  uint32_t stand_in;
};
std::span<const NewerRange> newer_ranges();

}  // namespace ingot
