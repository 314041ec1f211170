// Text of models and data made safe for a terminal: a control character could move the cursor, recolour or
// retitle the window, or answer for the person who types.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

/// The text with every control character but newline and tab written as an escape: "\x1b" for bytes below
/// 0x20 and 0x7F, "\u{9b}" for U+0080 to U+009F and for the marks that reverse the direction of writing
/// (U+202A to U+202E, U+2066 to U+2069); "\r\n" stays. Bytes that are not UTF-8 are escaped as "\xff".
std::string terminal_text(std::string_view text);

/// terminal_text() where standard output (1) or error (2) is a terminal, else the text unchanged: files and
/// pipes get every byte.
std::string text_for(int file_descriptor, std::string_view text);

}  // namespace ingot
