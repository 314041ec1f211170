// Threads for kernels: one process-wide pool and `parallel_for`. Where a loop is for the whole pool, each
// thread begins with the same part of the range every time and so finds in its caches what it wrote there;
// one that ends early takes from others. Which thread runs which part is not defined, so a kernel's result
// must not depend on it (docs/numerics.md: every output element has one writer and one order). A call from
// inside a parallel region, or from a thread that set `ScopedThreads(1)`, runs inline.
//
// Why not OpenMP (parallel.cpp has 230 lines): the thread sanitizer understands it, builds of gcc and clang
// share one runtime, thread ranks (several callers in one process) can be given their own share of the
// threads, and an idle worker can prefetch.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace ingot {

/// Threads that parallel_for may use, callers included: $INGOT_THREADS, else the cores this process may run
/// on; 1 inside a parallel region.
int num_threads();
/// Changes the size of the pool; not while a parallel_for runs.
void set_num_threads(int threads);

/// Limits parallel_for to `threads` for the calling thread while in scope.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads);
  ~ScopedThreads();
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_;
};

namespace detail {
using RangeFn = void (*)(void* context, int64_t begin, int64_t end);
void parallel_ranges(int64_t count, int64_t grain, RangeFn fn, void* context);
}  // namespace detail

/// Calls body(begin, end) over disjoint ranges of at most `grain` items that cover [0, count). Returns when
/// all are done; the first exception of a range is rethrown here. grain >= 1.
template <class Body>
void parallel_for(int64_t count, int64_t grain, Body&& body) {
  using Fn = std::remove_reference_t<Body>;
  detail::parallel_ranges(
      count, grain,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<Fn*>(context))(begin, end); },
      const_cast<std::remove_const_t<Fn>*>(&body));
}

/// Calls body(item) for items sorted by falling cost: a thread that is free takes the next, so that all end
/// together.
template <class Body>
void parallel_in_order(int64_t count, Body&& body) {
  std::atomic<int64_t> next{0};
  parallel_for(std::min<int64_t>(count, num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(item);
  });
}

}  // namespace ingot
