// UTF-8: one strict decoding step, and what is built on it (validation, lossy repair). Strict
// means Unicode table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::utf8 {

enum class Status {
  valid,    ///< `length` bytes are one code point
  invalid,  ///< `length` bytes can never begin a code point (the maximal ill-formed subpart)
  cut,      ///< all `length` remaining bytes are the beginning of a code point that more bytes could finish
};

struct Step {
  Status status;
  uint32_t code_point;  ///< only when valid
  size_t length;        ///< 1 to 4
};

/// Decodes the first code point of `text`, which is not empty.
Step decode(std::string_view text);

/// Length of the longest prefix that is valid UTF-8.
size_t valid_prefix(std::string_view text);

/// Appends the encoding of `code_point` (a Unicode scalar value).
void append(std::string& out, uint32_t code_point);

/// Replaces every maximal ill-formed subpart by U+FFFD, as Rust's from_utf8_lossy and WHATWG decoders do.
std::string repair(std::string_view bytes);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace ingot::utf8
