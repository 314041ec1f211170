// Memory for what is read at the rate of memory (weights, caches of sequences): allocations adjoin each other
// in huge pages, which may span two of them. Mapped one by one, each would have small pages at both ends: a
// fifth of GPT-2's weights.
#pragma once
#include <cstdint>

namespace ingot {

/// Zeros, at the start of a small page; directly after the allocation before where that is possible. Throws
/// std::bad_alloc. Thread-safe.
void* map_densely(int64_t bytes);
/// Returns an allocation to the system; its addresses are not used again. Thread-safe.
void unmap_densely(void* data, int64_t bytes);

}  // namespace ingot
