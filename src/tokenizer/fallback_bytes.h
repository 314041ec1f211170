// Tokens of single bytes, "<0x0A>", which stand for characters without a token of their own.
#pragma once
#include <cstdint>

#include "base/error.h"

namespace ingot {

/// Error unless every byte that can stand in a character without a token has one itself. `has_character(c)`:
/// whether the character c < 128 has a token.
template <class HasCharacter>
void require_fallback(const int32_t (&byte_id)[256], const HasCharacter& has_character) {
  for (int b = 0; b < 256; ++b)
    if (byte_id[b] < 0 && (b >= 128 || !has_character(b)))
      throw Error(
          fmt::format("model.vocab has no token <0x{:02X}>: text with that byte could not be encoded", b),
          "a vocabulary over characters needs byte fallback with a token for every byte");
}

}  // namespace ingot
