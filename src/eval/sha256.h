// SHA-256 (FIPS 180-4) in hex: the hash by which lm-evaluation-harness's files name documents and prompts.
// Pure function; thread-safe.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

/// 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace ingot
