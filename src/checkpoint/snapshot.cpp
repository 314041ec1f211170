// See snapshot.h.
#include "checkpoint/snapshot.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/error.h"
#include "base/parallel.h"
#include "base/round.h"

namespace ingot {
namespace {

constexpr int64_t kHugePage = 2 << 20, kPage = 4096;

}  // namespace

void Snapshot::FreeBytes::operator()(std::byte* p) const {
  std::free(p);
}

void Snapshot::reserve(int64_t bytes) {
  if (bytes <= bytes_) return;
  memory_.reset();
  bytes_ = 0;
  const int64_t size = round_up(bytes, kHugePage);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, static_cast<size_t>(size))));
  if (!memory_)
    throw Error(
        fmt::format("no memory for the copy of {} MiB that an asynchronous checkpoint needs", size >> 20),
        "write checkpoints synchronously, or use a smaller model");
  ::madvise(memory_.get(), static_cast<size_t>(size), MADV_HUGEPAGE);
  bytes_ = size;
  parallel_for(size / kPage, kHugePage / kPage, [&](int64_t begin, int64_t end) {
    for (int64_t page = begin; page < end; ++page) memory_.get()[page * kPage] = std::byte{0};
  });
}

}  // namespace ingot
