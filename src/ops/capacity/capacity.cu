// capacity on a GPU: a block for an expert finds the last key that it keeps, and strikes out what comes
// behind.
#include "device/gpu/block_select.h"
#include "ops/capacity/gpu_capacity.h"

namespace ingot::INGOT_ISA {
namespace {

/// One key for all where positions count alone.
INGOT_INLINE uint32_t key_of(const GpuCapacity& c, int64_t slot) {
  return c.by_weight ? descending_key(c.probs[slot]) : 0;
}

INGOT_KERNEL(kCountThreads)
copy_kernel(const GpuCapacity c) {
  const int64_t s = global_thread();
  if (s >= c.slots) return;
  c.kept_ids[s] = c.ids[s];
  c.kept_probs[s] = c.ids[s] < 0 ? 0.0f : c.probs[s];
}

INGOT_KERNEL(kCountThreads)
drop_kernel(const GpuCapacity c) {
  INGOT_SHARED(BlockCounts, counts);
  const auto expert = static_cast<int32_t>(block_index());
  int32_t own = 0;
  for (int64_t s = thread_index(); s < c.slots; s += kCountThreads) own += c.ids[s] == expert ? 1 : 0;
  if (count_before(counts, own).all <= c.limit) return;
  const auto is_of = [&](int64_t s) { return c.ids[s] == expert; };
  const auto key = [&](int64_t s) { return key_of(c, s); };
  each_judged(counts, c.slots, last_kept(counts, c.slots, c.limit, is_of, key), is_of, key,
              [&](int64_t s, bool is_kept) {
                if (!is_kept) c.kept_ids[s] = -1, c.kept_probs[s] = 0.0f;
              });
}

/// In one block.
INGOT_KERNEL(kCountThreads)
dropped_kernel(const GpuCapacity c) {
  INGOT_SHARED(BlockCounts, counts);
  int32_t own = 0;
  for (int64_t s = thread_index(); s < c.slots; s += kCountThreads)
    own += c.ids[s] >= 0 && c.kept_ids[s] < 0 ? 1 : 0;
  const Count all = count_before(counts, own);
  if (thread_index() == 0) *c.dropped = static_cast<float>(all.all);
}

INGOT_KERNEL(kCountThreads)
gradient_kernel(const GpuCapacityGradient c) {
  const int64_t s = global_thread();
  if (s >= c.slots) return;
  const float d = c.d_kept != nullptr && c.kept_ids[s] >= 0 ? c.d_kept[s] : 0.0f;
  c.d_probs[s] = c.accumulate ? add_rn(c.d_probs[s], d) : d;
}

}  // namespace

void launch_capacity(GpuStream stream, const GpuCapacity& c) {
  launch("capacity_copy", copy_kernel, grid_of(c.slots, kCountThreads), stream, c);
  if (c.slots > 0) launch("capacity_drop", drop_kernel, {c.experts, kCountThreads}, stream, c);
  launch("capacity_dropped", dropped_kernel, {1, kCountThreads}, stream, c);
}

void launch_capacity_gradient(GpuStream stream, const GpuCapacityGradient& c) {
  launch("capacity_gradient", gradient_kernel, grid_of(c.slots, kCountThreads), stream, c);
}

}  // namespace ingot::INGOT_ISA
