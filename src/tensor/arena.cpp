// See arena.h.
#include "tensor/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;
constexpr int64_t kMapFrom =
    kHugePage;  // from here on: own mapping, zeroed by the system, huge pages asked for

int64_t mapped_bytes(int64_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

/// Begins at a multiple of a huge page and ends at one: a huge page that lies in the mapping only in part would be small ones, which slows
/// whatever walks along columns. nullptr: the system refused.
void* map_huge_pages(int64_t bytes) {
  const auto size = static_cast<size_t>(mapped_bytes(bytes)), page = static_cast<size_t>(kHugePage);
  void* p = ::mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* const first = static_cast<char*>(p);
  const size_t before = (page - reinterpret_cast<uintptr_t>(first) % page) % page;
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + size, page - before);
  ::madvise(first + before, size, MADV_HUGEPAGE);
  return first + before;
}

void* system_allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes >= kMapFrom) {
    void* p = map_huge_pages(bytes);
    if (p == nullptr)
      throw Error(
          fmt::format("out of memory: the system refused {:.1f} MiB", static_cast<double>(bytes) / 1048576),
          "use a smaller batch or model, or recompute more; `ingot run --plan` shows the predicted memory");
    return p;
  }
  void* p = std::aligned_alloc(64, static_cast<size_t>(bytes));
  if (p == nullptr) fail("out of memory: the system refused {} bytes", bytes);
  return p;
}

void* reserve_addresses(int64_t bytes, int protection) {
  if (bytes == 0) return nullptr;
  void* p = ::mmap(nullptr, static_cast<size_t>(bytes), protection,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail("the system has no {:.1f} GiB of addresses", static_cast<double>(bytes) / (1 << 30));
  return p;
}

void system_release(void* p, int64_t bytes) {
  if (p == nullptr) return;
  if (bytes >= kMapFrom)
    ::munmap(p, static_cast<size_t>(mapped_bytes(bytes)));
  else
    std::free(p);
}

}  // namespace

HeapArena::~HeapArena() {
  trim();
}

void HeapArena::trim() {
  for (auto& [bytes, blocks] : free_)
    for (void* p : blocks) system_release(p, bytes);
  free_.clear();
}

Block HeapArena::allocate(int64_t bytes, const char*) {
  const int64_t size = round_up_block(bytes);
  count(size);
  auto it = free_.find(size);
  if (it != free_.end() && !it->second.empty()) {
    void* p = it->second.back();
    it->second.pop_back();
    return {p, size, 0};
  }
  return {system_allocate(size), size, 0};
}

void HeapArena::release(const Block& block) {
  count(-block.bytes);
  if (block.data != nullptr) free_[block.bytes].push_back(block.data);
}

Block CountingArena::allocate(int64_t bytes, const char* category) {
  const int64_t size = round_up_block(bytes);
  const int64_t before = peak_bytes();
  count(size);
  live_by_category_[category] += size;
  if (peak_bytes() > before) peak_by_category_ = live_by_category_;
  lives_.push_back({size, clock_++, -1, category});
  return {nullptr, size, static_cast<int64_t>(lives_.size()) - 1};
}

void CountingArena::release(const Block& block) {
  count(-block.bytes);
  BufferLife& life = lives_[static_cast<size_t>(block.id)];
  INGOT_CHECK(life.death < 0, "buffer {} released twice", block.id);
  life.death = clock_++;
  live_by_category_[life.category] -= block.bytes;
}

MemoryPlan plan_memory(const std::vector<BufferLife>& lives) {
  MemoryPlan plan;
  plan.bytes.reserve(lives.size());
  plan.offsets.assign(lives.size(), 0);
  std::vector<size_t> live;  // indices of buffers alive now, by offset
  for (size_t i = 0; i < lives.size(); ++i) {
    const BufferLife& b = lives[i];
    plan.bytes.push_back(b.bytes);
    std::erase_if(live, [&](size_t j) { return lives[j].death >= 0 && lives[j].death < b.birth; });
    int64_t best_offset = -1, best_gap = INT64_MAX, end = 0;
    for (const size_t j : live) {
      const int64_t gap = plan.offsets[j] - end;
      if (gap >= b.bytes && gap < best_gap) best_gap = gap, best_offset = end;
      end = std::max(end, plan.offsets[j] + plan.bytes[j]);
    }
    plan.offsets[i] = best_offset >= 0 ? best_offset : end;
    plan.slab_bytes = std::max(plan.slab_bytes, plan.offsets[i] + b.bytes);
    live.insert(std::upper_bound(live.begin(), live.end(), i,
                                 [&](size_t x, size_t y) { return plan.offsets[x] < plan.offsets[y]; }),
                i);
  }
  return plan;
}

PlannedArena::PlannedArena(MemoryPlan plan)
    : plan_(std::move(plan)), slab_(system_allocate(plan_.slab_bytes)) {}

PlannedArena::~PlannedArena() {
  system_release(slab_, plan_.slab_bytes);
}

Block PlannedArena::allocate(int64_t bytes, const char* category) {
  const int64_t size = round_up_block(bytes);
  const size_t n = next_++;
  if (n < plan_.bytes.size() && size <= plan_.bytes[n]) {
    count(size);
    return {size == 0 ? nullptr : static_cast<char*>(slab_) + plan_.offsets[n], size,
            static_cast<int64_t>(n)};
  }
  ++misses_;  // a dynamic size beyond the plan: this one comes from the heap
  count(size);
  Block block = overflow_.allocate(bytes, category);
  block.id = -2;
  return block;
}

void PlannedArena::release(const Block& block) {
  count(-block.bytes);
  if (block.id == -2) overflow_.release(block);
}

void PlannedArena::restart() {
  INGOT_CHECK(live_bytes() == 0, "{} bytes are still alive", live_bytes());
  next_ = 0;
}

Buffer::Buffer(int64_t bytes, Backing backing) : bytes_(round_up_block(bytes)), backing_(backing) {
  if (backing != Backing::memory) {
    data_ = reserve_addresses(bytes_, backing == Backing::nothing ? PROT_NONE : PROT_READ | PROT_WRITE);
    // Huge pages would keep what lies beside a share in memory with it.
    if (backing == Backing::sparse && data_ != nullptr)
      ::madvise(data_, static_cast<size_t>(bytes_), MADV_NOHUGEPAGE);
    return;
  }
  data_ = system_allocate(bytes_);
  if (data_ != nullptr && bytes_ < kMapFrom) std::fill_n(static_cast<char*>(data_), bytes_, 0);
}
Buffer::~Buffer() {
  if (backing_ == Backing::memory)
    system_release(data_, bytes_);
  else if (data_ != nullptr)
    ::munmap(data_, static_cast<size_t>(bytes_));
}
Buffer::Buffer(Buffer&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)), backing_(o.backing_) {}
Buffer& Buffer::operator=(Buffer&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(bytes_, o.bytes_);
  std::swap(backing_, o.backing_);
  return *this;
}

void Buffer::discard(int64_t begin, int64_t end) {
  INGOT_CHECK(backing_ != Backing::memory && begin >= 0 && end <= bytes_, "[{}, {}) of {}", begin, end,
              bytes_);
  static const int64_t page = ::sysconf(_SC_PAGESIZE);  // mappings begin on one
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (backing_ == Backing::nothing || begin >= end) return;
  ::madvise(static_cast<char*>(data_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace ingot
