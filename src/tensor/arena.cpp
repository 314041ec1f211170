// See arena.h.
#include "tensor/arena.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/free_gaps.h"

namespace ingot {
namespace {

constexpr int64_t kOverflow = -2;  // less the Block::id on the heap: that of a PlannedArena's block there

constexpr int64_t kMostBytes = int64_t{1} << 60;  // of all buffers of an arena that counts

}  // namespace

HeapArena::~HeapArena() {
  give_back_all();
}

void HeapArena::give_back_all() {
  for (const auto& [bytes, blocks] : free_)
    for (void* p : blocks) device_.release(p, bytes);
  free_.clear();
}

/// The smallest block that holds the bytes, of at most twice as many: calls with other numbers of rows use
/// the same memory. What nobody uses stays below twice what was live at most. Block::id: the size on the
/// heap.
Block HeapArena::allocate(int64_t bytes, const char* category) {
  const int64_t size = round_up_block(bytes);
  count(size);
  if (const auto it = free_.lower_bound(size); it != free_.end() && it->first <= 2 * size) {
    const Block block{it->second.back(), size, it->first};
    it->second.pop_back();
    if (it->second.empty()) free_.erase(it);
    device_.begin_use(block.data, size, category);
    return block;
  }
  int64_t unused = 0;
  for (const auto& [each, blocks] : free_) unused += each * static_cast<int64_t>(blocks.size());
  if (unused > 2 * peak_bytes()) give_back_all();
  const Block block{device_.allocate(size), size, size};
  if (block.data != nullptr) device_.begin_use(block.data, size, category);
  return block;
}

void HeapArena::release(const Block& block) {
  count(-block.bytes);
  if (block.data == nullptr) return;
  device_.end_use(block.data, block.bytes);
  free_[block.id].push_back(block.data);
}

Block CountingArena::allocate(int64_t bytes, const char* category) {
  const int64_t size = round_up_block(bytes);
  const int64_t before = peak_bytes();
  count(size);
  if (live_bytes() > kMostBytes)
    throw Error(fmt::format("a step would need more than {} bytes of memory", kMostBytes),
                "use a smaller micro_batch, sequence or model");
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
  std::vector<size_t> released;  // allocations that end, in the order of their ends
  for (size_t i = 0; i < allocations.size(); ++i)
    if (allocations[i].released >= 0) released.push_back(i);
  std::sort(released.begin(), released.end(),
            [&](size_t i, size_t j) { return allocations[i].released < allocations[j].released; });
  auto next = released.begin();
  FreeGaps gaps;
  for (size_t i = 0; i < allocations.size(); ++i) {
    const Allocation& a = allocations[i];
    plan.bytes.push_back(a.bytes);
    for (; next != released.end() && allocations[*next].released < a.allocated; ++next)
      gaps.give_back(plan.offsets[*next], plan.bytes[*next]);
    plan.offsets[i] = gaps.take(a.bytes);
    plan.slab_bytes = std::max(plan.slab_bytes, plan.offsets[i] + a.bytes);
  }
  return plan;
}

PlannedArena::PlannedArena(MemoryPlan plan, Device& device)
    : device_(device), plan_(std::move(plan)), slab_(device.allocate(plan_.slab_bytes)) {}

PlannedArena::~PlannedArena() {
  device_.release(slab_, plan_.slab_bytes);
}

Block PlannedArena::allocate(int64_t bytes, const char* category) {
  const int64_t size = round_up_block(bytes);
  const size_t n = next_++;
  count(size);
  if (n < plan_.bytes.size() && size <= plan_.bytes[n]) {
    void* const data = size == 0 ? nullptr : static_cast<char*>(slab_) + plan_.offsets[n];
    if (data != nullptr) device_.begin_use(data, size, category);
    return {data, size, static_cast<int64_t>(n)};
  }
  ++misses_;
  Block block = overflow_.allocate(bytes, category);
  block.id = kOverflow - block.id;
  return block;
}

void PlannedArena::release(const Block& block) {
  count(-block.bytes);
  if (block.id <= kOverflow)
    overflow_.release({block.data, block.bytes, kOverflow - block.id});
  else if (block.data != nullptr)
    device_.end_use(block.data, block.bytes);
}

void PlannedArena::restart() {
  INGOT_CHECK(live_bytes() == 0, "{} bytes are still allocated", live_bytes());
  next_ = 0;
}

}  // namespace ingot
