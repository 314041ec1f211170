// A hint of what is likely read after a parallel_for (base/parallel.h): an idle worker prefetches it.
#pragma once
#include <cstdint>

namespace ingot {

/// While in scope, a parallel_for of the calling thread leaves its first worker this memory to bring into its
/// level 2 cache as long as there is no other work. The memory need not be mapped, or exist any more.
class ScopedPrefetchHint {
 public:
  ScopedPrefetchHint(const void* begin, int64_t bytes);
  ~ScopedPrefetchHint();
  ScopedPrefetchHint(const ScopedPrefetchHint&) = delete;
  ScopedPrefetchHint& operator=(const ScopedPrefetchHint&) = delete;
};

}  // namespace ingot
