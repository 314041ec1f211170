// See scratch.h.
#include "device/memory/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace ingot {
namespace {

struct Area {
  void* data = nullptr;
  int64_t size = 0;
  ~Area() { std::free(data); }
};

}  // namespace

void* scratch(ScratchSlot slot, int64_t bytes) {
  thread_local Area areas[static_cast<int>(ScratchSlot::count)];
  Area& area = areas[static_cast<int>(slot)];
  if (bytes <= area.size) return area.data;
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const int64_t align = bytes >= kHugePage / 4 ? kHugePage : 64;
  // A quarter more than asked for, so that slowly growing problems seldom reallocate.
  const int64_t size = (bytes + bytes / 4 + align - 1) / align * align;
  std::free(area.data);
  area.data = nullptr;
  area.size = 0;
  area.data = std::aligned_alloc(static_cast<size_t>(align), static_cast<size_t>(size));
  if (area.data == nullptr) throw std::bad_alloc();
  area.size = size;
#if defined(MADV_HUGEPAGE)
  if (align == kHugePage) madvise(area.data, static_cast<size_t>(size), MADV_HUGEPAGE);
#endif
  return area.data;
}

}  // namespace ingot
