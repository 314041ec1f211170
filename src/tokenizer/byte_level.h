// GPT-2's printable stand-ins for bytes, the alphabet in which tokenizer.json writes byte-level tokens:
// 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves as code points, the other 68 bytes, in order, are
// U+0100, U+0101, ... Source: openai/gpt-2 encoder.py; huggingface/tokenizers pre_tokenizers/byte_level.rs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ingot::byte_level {

uint32_t code_point_of(uint8_t byte);
/// The byte that a code point stands for, or -1.
int byte_of(uint32_t code_point);

/// "a b" -> "aĠb".
std::string to_alphabet(std::string_view bytes);
/// "aĠb" -> "a b"; nothing when a character outside the alphabet occurs. `token` must be valid UTF-8.
std::optional<std::string> from_alphabet(std::string_view token);

}  // namespace ingot::byte_level
