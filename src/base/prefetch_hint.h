// What is likely read after a parallel_for (base/parallel.h): a worker that has nothing to do fetches it meanwhile.
#pragma once
#include <cstdint>

namespace ingot {

/// While in scope, a parallel_for of the calling thread leaves its first worker with this memory to bring into its level 2 cache as
/// long as there is no other work. Only a hint: the memory need not be there any more, nor be mapped.
class ScopedPrefetchHint {
 public:
  ScopedPrefetchHint(const void* begin, int64_t bytes);
  ~ScopedPrefetchHint();
  ScopedPrefetchHint(const ScopedPrefetchHint&) = delete;
  ScopedPrefetchHint& operator=(const ScopedPrefetchHint&) = delete;
};

}  // namespace ingot
