// Unicode normalization form C (UAX #15) as the tokenizers library does it, whose tables are those of Unicode
// 9: newer marks keep their places (tools/oracle/nfc_tables.py makes the tables).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ingot::nfc {

/// `text` (valid UTF-8) in form C; nothing where a quick look shows that it already is.
std::optional<std::string> normalize(std::string_view text);

// The generated tables (nfc_tables.cpp), ascending.
struct Decomposition {
  uint32_t code_point, first;
  uint32_t second = 0;  ///< 0: canonical equivalent of a single code point
};
struct CombiningRange {
  uint32_t begin, end;  ///< inclusive
  uint8_t combining_class;
};
std::span<const Decomposition> decompositions();
std::span<const uint32_t> composition_exclusions();
std::span<const CombiningRange> combining_ranges();

}  // namespace ingot::nfc
