// See arena.h.
#include "tensor/arena.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/pages.h"

namespace ingot {
namespace {

constexpr int64_t kOverflow = -2;  // Block::id of a PlannedArena's block on the heap

}  // namespace

HeapArena::~HeapArena() {
  for (auto& [bytes, blocks] : free_)
    for (void* p : blocks) system_release(p, bytes);
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
  allocations_.push_back({size, events_++, -1, category});
  return {nullptr, size, static_cast<int64_t>(allocations_.size()) - 1};
}

void CountingArena::release(const Block& block) {
  count(-block.bytes);
  Allocation& a = allocations_[static_cast<size_t>(block.id)];
  INGOT_CHECK(a.released < 0, "buffer {} released twice", block.id);
  a.released = events_++;
  live_by_category_[a.category] -= block.bytes;
}

MemoryPlan plan_memory(const std::vector<Allocation>& allocations) {
  MemoryPlan plan;
  plan.bytes.reserve(allocations.size());
  plan.offsets.assign(allocations.size(), 0);
  std::vector<size_t> live;  // allocations that are not released yet, by offset
  for (size_t i = 0; i < allocations.size(); ++i) {
    const Allocation& a = allocations[i];
    plan.bytes.push_back(a.bytes);
    std::erase_if(live, [&](size_t j) {
      return allocations[j].released >= 0 && allocations[j].released < a.allocated;
    });
    int64_t best_offset = -1, best_gap = INT64_MAX, end = 0;
    for (const size_t j : live) {
      const int64_t gap = plan.offsets[j] - end;
      if (gap >= a.bytes && gap < best_gap) best_gap = gap, best_offset = end;
      end = std::max(end, plan.offsets[j] + plan.bytes[j]);
    }
    plan.offsets[i] = best_offset >= 0 ? best_offset : end;
    plan.slab_bytes = std::max(plan.slab_bytes, plan.offsets[i] + a.bytes);
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
  count(size);
  if (n < plan_.bytes.size() && size <= plan_.bytes[n])
    return {size == 0 ? nullptr : static_cast<char*>(slab_) + plan_.offsets[n], size,
            static_cast<int64_t>(n)};
  ++misses_;
  Block block = overflow_.allocate(bytes, category);
  block.id = kOverflow;
  return block;
}

void PlannedArena::release(const Block& block) {
  count(-block.bytes);
  if (block.id == kOverflow) overflow_.release(block);
}

void PlannedArena::restart() {
  INGOT_CHECK(live_bytes() == 0, "{} bytes are still allocated", live_bytes());
  next_ = 0;
}

}  // namespace ingot
