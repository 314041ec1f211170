// Memory for what is read as fast as memory goes (weights, caches of sequences): one piece behind the other
// in huge pages, which therefore reach across their borders. Mapped each for itself, a piece has small pages
// at both ends: of GPT-2's weights a fifth.
#pragma once
#include <cstdint>

namespace ingot {

/// Zeros, at the start of a small page; directly behind the piece before where that is possible. Throws
/// std::bad_alloc. Thread-safe.
void* map_densely(int64_t bytes);
/// Gives a piece back to the system; its addresses are not used again.
void unmap_densely(void* piece, int64_t bytes);

}  // namespace ingot
