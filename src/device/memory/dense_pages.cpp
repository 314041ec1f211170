// See dense_pages.h. Reserved addresses have no memory until they are written, so the unused end of a range
// is free.
#include "device/memory/dense_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>

namespace ingot {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kRange = size_t{256} << 20, kPage = 4096;

size_t up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}
size_t whole_pages(int64_t bytes) {
  return up(static_cast<size_t>(std::max<int64_t>(bytes, 1)), kPage);
}

/// `bytes`, a multiple of huge pages, at the start of one.
char* map_range(size_t bytes) {
  void* p = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  char* mapped = static_cast<char*>(p);
  const size_t before = up(reinterpret_cast<uintptr_t>(p), kHugePage) - reinterpret_cast<uintptr_t>(p);
  if (before > 0) ::munmap(mapped, before);
  ::munmap(mapped + before + bytes, kHugePage - before);
#if defined(MADV_HUGEPAGE)
  ::madvise(mapped + before, bytes, MADV_HUGEPAGE);
#endif
  return mapped + before;
}

}  // namespace

void* map_densely(int64_t bytes) {
  static std::mutex mutex;
  static char* next = nullptr;  // of the latest range
  static size_t left = 0;
  const std::lock_guard lock(mutex);
  const size_t size = whole_pages(bytes);
  if (size > left) {
    const size_t range = up(std::max(size, kRange), kHugePage);
    next = map_range(range);
    left = range;
  }
  char* data = next;
  next += size, left -= size;
  return data;
}

void unmap_densely(void* data, int64_t bytes) {
  ::munmap(data, whole_pages(bytes));
}

}  // namespace ingot
