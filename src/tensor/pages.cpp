// See pages.h.
#include "tensor/pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace ingot {

namespace {

/// Advice for the whole pages of a size that lie in a tensor's memory.
void advise(const Tensor& values, uintptr_t page, int advice) {
  const auto begin = reinterpret_cast<uintptr_t>(values.data),
             end = begin + static_cast<uintptr_t>(values.bytes());
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

void give_back_pages(const Tensor& values) {
  advise(values, static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), MADV_DONTNEED);
}

void ask_huge_pages(const Tensor& values) {
  advise(values, uintptr_t{1} << 21, MADV_HUGEPAGE);
}

}  // namespace ingot
