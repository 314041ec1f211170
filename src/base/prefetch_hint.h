// A hint of what is likely read after a parallel_for (base/parallel.h); an idle worker prefetches it.
#pragma once
#include <cstdint>

namespace ingot {

/// While in scope, a parallel_for of the calling thread lets its first worker prefetch this memory into its
/// level 2 cache while it has no other work. The memory may be unmapped or freed by then.
class ScopedPrefetchHint {
 public:
  ScopedPrefetchHint(const void* begin, int64_t bytes);
  ~ScopedPrefetchHint();
  ScopedPrefetchHint(const ScopedPrefetchHint&) = delete;
  ScopedPrefetchHint& operator=(const ScopedPrefetchHint&) = delete;
};

}  // namespace ingot
