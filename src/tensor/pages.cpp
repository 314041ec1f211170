// See pages.h.
#include "tensor/pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace ingot {

void give_back_pages(const Tensor& values) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(values.data), end = begin + static_cast<uintptr_t>(values.bytes());
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace ingot
