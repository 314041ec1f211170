// See pages.h.
#include "device/memory/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/round.h"

namespace ingot {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;

/// The mapping begins and ends at a multiple of a huge page: the system backs a huge page that lies in a
/// mapping only in part with small ones, and these slow down whatever walks along columns. nullptr: the
/// system refused.
void* map_huge_pages(int64_t bytes) {
  const auto size = static_cast<size_t>(round_up(bytes, kHugePage)), page = static_cast<size_t>(kHugePage);
  void* p = ::mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* const first = static_cast<char*>(p);
  const size_t before = (page - reinterpret_cast<uintptr_t>(first) % page) % page;
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + size, page - before);
  ::madvise(first + before, size, MADV_HUGEPAGE);
  return first + before;
}

/// Advises the system about the whole pages (of size `page`) within these bytes.
void advise(void* data, int64_t bytes, uintptr_t page, int advice) {
  const auto begin = reinterpret_cast<uintptr_t>(data), end = begin + static_cast<uintptr_t>(bytes);
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

bool is_mapped(int64_t bytes) {
  return bytes >= kHugePage;
}

void* system_allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* p = is_mapped(bytes) ? map_huge_pages(bytes)
                             : std::aligned_alloc(64, static_cast<size_t>(round_up(bytes, int64_t{64})));
  if (p == nullptr)
    throw Error(
        fmt::format("out of memory: the system refused {:.1f} MiB", static_cast<double>(bytes) / 1048576),
        "use a smaller batch or model, or recompute more; `ingot run --plan` shows the predicted memory");
  return p;
}

void system_release(void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  if (is_mapped(bytes))
    ::munmap(memory, static_cast<size_t>(round_up(bytes, kHugePage)));
  else
    std::free(memory);
}

void* reserve_addresses(int64_t bytes, bool writable) {
  if (bytes == 0) return nullptr;
  void* p = ::mmap(nullptr, static_cast<size_t>(bytes), writable ? PROT_READ | PROT_WRITE : PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail("the system has no {:.1f} GiB of addresses", static_cast<double>(bytes) / (1 << 30));
  // A huge page would stay as long as any of the values in it.
  if (writable) ::madvise(p, static_cast<size_t>(bytes), MADV_NOHUGEPAGE);
  return p;
}

void release_addresses(void* memory, int64_t bytes) {
  if (memory != nullptr) ::munmap(memory, static_cast<size_t>(bytes));
}

void give_back_pages(void* data, int64_t bytes) {
  advise(data, bytes, static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), MADV_DONTNEED);
}

void close_addresses(void* data, int64_t bytes) {
  if (bytes == 0) return;
  give_back_pages(data, round_up(bytes, int64_t{sysconf(_SC_PAGESIZE)}));
  INGOT_CHECK(::mprotect(data, static_cast<size_t>(bytes), PROT_NONE) == 0);
}

void open_addresses(void* data, int64_t bytes) {
  if (bytes == 0) return;
  INGOT_CHECK(::mprotect(data, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) == 0);
}

void ask_huge_pages(void* data, int64_t bytes) {
  advise(data, bytes, static_cast<uintptr_t>(kHugePage), MADV_HUGEPAGE);
}

}  // namespace ingot
