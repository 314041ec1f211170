// See memory_rate.h.
#include "device/machine/memory_rate.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/error.h"
#include "device/machine/peak_kernels.h"
#include "device/machine/round_times.h"

namespace ingot {
namespace {

/// Page aligned, in huge pages where the system grants them: memory is measured, not the page table.
std::shared_ptr<std::byte> pages(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  ::madvise(data, size, MADV_HUGEPAGE);
#endif
  return {static_cast<std::byte*>(data), [size](std::byte* p) { ::munmap(p, size); }};
}

/// Bytes of each of three equal parts that a kernel's steps divide.
int64_t third_of(int64_t bytes) {
  return bytes / 3 / 1024 * 1024;
}

/// What a pass reads and writes of a working set.
int64_t moved_by(MemoryPass pass, int64_t bytes) {
  return pass == MemoryPass::add || pass == MemoryPass::triad ? 3 * third_of(bytes) : bytes;
}

void pass_over(MemoryPass pass, std::byte* data, int64_t bytes, PeakVectors vectors) {
  const int64_t third = third_of(bytes);
  float sink[4] = {1.0f, 0.0f, 0.0f, 0.0f};
  switch (pass) {
    case MemoryPass::read:
      return INGOT_ISA_CALL(peak_read)(data, bytes, sink);
    case MemoryPass::write:
      return INGOT_ISA_CALL(peak_write)(data, bytes, sink);
    case MemoryPass::stream:
      return INGOT_ISA_CALL(peak_stream)(data, bytes, sink);
    case MemoryPass::copy:
      return INGOT_ISA_CALL(peak_copy)(data, data + bytes / 2, bytes / 2, vectors);
    case MemoryPass::add:
      return INGOT_ISA_CALL(peak_add)(data, data + third, data + 2 * third, third, vectors);
    case MemoryPass::triad:
      return INGOT_ISA_CALL(peak_triad)(data, data + third, data + 2 * third, third, vectors, sink);
  }
}

bool reads_and_writes(MemoryPass pass) {
  return pass == MemoryPass::copy || pass == MemoryPass::add || pass == MemoryPass::triad;
}

}  // namespace

MemoryBench::MemoryBench(int threads, int64_t largest) {
  for (int t = 0; t < threads; ++t) areas_.push_back(pages(largest));
  round_times(threads, 1, [&](int t, int) {
    std::memset(areas_[static_cast<size_t>(t)].get(), 0, static_cast<size_t>(largest));
  });
}

double MemoryBench::rate(MemoryPass pass, int threads, int64_t bytes, double seconds) {
  INGOT_CHECK(threads <= static_cast<int>(areas_.size()) && bytes > 0 && bytes % 2048 == 0 &&
                  moved_by(pass, bytes) > 0,
              "{} threads, {} bytes", threads, bytes);
  const auto times = [&](PeakVectors vectors, int64_t passes, int rounds) {
    return round_times(threads, rounds, [&](int t, int) {
      for (int64_t i = 0; i < passes; ++i)
        pass_over(pass, areas_[static_cast<size_t>(t)].get(), bytes, vectors);
    });
  };
  const double first = std::max(1e-8, times(PeakVectors::wide, 1, 2)[1]);  // the first pass fills the caches
  const auto passes = static_cast<int64_t>(std::max(1.0, seconds / first));
  PeakVectors vectors = PeakVectors::wide;
  if (reads_and_writes(pass)) {
    const int64_t few = (passes + 7) / 8;
    if (times(PeakVectors::narrow, few, 1)[0] < times(PeakVectors::wide, few, 1)[0])
      vectors = PeakVectors::narrow;
  }
  const double time = times(vectors, passes, 1)[0];
  return static_cast<double>(moved_by(pass, bytes)) * static_cast<double>(passes) * threads / time;
}

}  // namespace ingot
