// permute's map on a GPU: a counting sort without scratch, in which a block per expert looks at all choices,
// 2,048 at a time. Its places follow from the choices before it, so no order of threads matters.
#include "device/gpu/block_count.h"
#include "ops/permute/gpu_permute.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kMapThreads = kCountThreads, kEach = 8;

INGOT_INLINE bool is_of(const GpuRowMap& m, int64_t slot, int32_t expert) {
  return slot < m.slots && m.ids[slot] >= 0 && m.ids[slot] - m.first == expert;
}

/// What slots without a row, and rows without a token, have.
INGOT_KERNEL(kMapThreads)
clear_kernel(const GpuRowMap m) {
  const int64_t i = global_thread();
  if (i < m.slots) m.row[i] = -1;
  if (i < m.rows) m.token[i] = -1, m.p[i] = 0.0f;
}

/// offsets[e + 1] = the choices of expert e, of the block.
INGOT_KERNEL(kMapThreads)
count_kernel(const GpuRowMap m) {
  INGOT_SHARED(BlockCounts, counts);
  const auto expert = static_cast<int32_t>(block_index());
  int32_t own = 0;
  for (int64_t s = thread_index(); s < m.slots; s += kMapThreads) own += is_of(m, s, expert) ? 1 : 0;
  const Count c = count_before(counts, own);
  if (thread_index() == 0) m.offsets[expert + 1] = c.all;
}

/// From counts to offsets, in one block.
INGOT_KERNEL(kMapThreads)
offsets_kernel(const GpuRowMap m) {
  INGOT_SHARED(BlockCounts, counts);
  INGOT_SHARED(int32_t, too_many);
  if (thread_index() == 0) too_many = 0, m.offsets[0] = 0;
  sync_threads();
  int32_t before = 0;
  for (int32_t first = 0; first < m.experts; first += kMapThreads) {
    const int32_t e = first + static_cast<int32_t>(thread_index());
    int32_t own = e < m.experts ? m.offsets[e + 1] : 0;
    if (m.bound > 0 && own > m.bound) too_many = 1, own = static_cast<int32_t>(m.bound);
    if (m.pad && e < m.experts) own = static_cast<int32_t>(m.bound);
    const Count c = count_before(counts, own);
    const int32_t end = before + c.before + own;
    if (e < m.experts) m.offsets[e + 1] = end < m.rows ? end : static_cast<int32_t>(m.rows);
    if (end > m.rows) too_many = 1;
    before += c.all;
  }
  sync_threads();
  if (too_many == 0) return;
  for (int64_t r = thread_index(); r < m.rows; r += kMapThreads) m.p[r] = as_float_bits(0x7FC00000u);
}

INGOT_KERNEL(kMapThreads)
place_kernel(const GpuRowMap m) {
  INGOT_SHARED(BlockCounts, counts);
  const auto expert = static_cast<int32_t>(block_index());
  int32_t next = m.offsets[expert];
  const int32_t end = m.offsets[expert + 1];
  for (int64_t first = 0; first < m.slots; first += kMapThreads * kEach) {
    const int64_t own = first + thread_index() * kEach;  // the thread's slots are neighbours
    int32_t mine = 0;
    for (int i = 0; i < kEach; ++i) mine += is_of(m, own + i, expert) ? 1 : 0;
    const Count c = count_before(counts, mine);
    int32_t r = next + c.before;
    for (int64_t s = own; s < own + kEach; ++s) {
      if (!is_of(m, s, expert)) continue;
      if (r < end) {
        m.row[s] = r, m.token[r] = static_cast<int32_t>(s / m.k);
        if (m.p[r] == 0.0f) m.p[r] = m.probs[s];  // NaN stays
      }
      ++r;
    }
    next += c.all;
  }
}

INGOT_KERNEL(kMapThreads)
slot_values_kernel(const GpuSlotValues v) {
  const int64_t s = global_thread();
  if (s >= v.slots) return;
  const float x = v.from != nullptr && v.row[s] >= 0 ? v.from[v.row[s]] : 0.0f;
  v.to[s] = v.accumulate ? add_rn(v.to[s], x) : x;
}

}  // namespace

void launch_row_map(GpuStream stream, const GpuRowMap& map) {
  const int64_t most = map.slots > map.rows ? map.slots : map.rows;
  launch("row_map_clear", clear_kernel, grid_of(most, kMapThreads), stream, map);
  launch("row_map_count", count_kernel, {map.experts, kMapThreads}, stream, map);
  launch("row_map_offsets", offsets_kernel, {1, kMapThreads}, stream, map);
  launch("row_map_place", place_kernel, {map.experts, kMapThreads}, stream, map);
}

void launch_slot_values(GpuStream stream, const GpuSlotValues& values) {
  launch("slot_values", slot_values_kernel, grid_of(values.slots, kMapThreads), stream, values);
}

}  // namespace ingot::INGOT_ISA
