// capacity on a GPU: a block for an expert finds the last key that it keeps, four bits of it at a time, and
// strikes out what comes behind. No order of threads matters.
// spills: at most 4 bytes, for the counts of 16 digits.
#include "device/gpu/block_count.h"
#include "ops/capacity/gpu_capacity.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kDigitBits = 4, kDigits = 1 << kDigitBits, kSlotsOfThread = 8;

/// Ascends where weights descend, both zeros equal, NaN last; one key for all where positions count alone.
INGOT_INLINE uint32_t key_of(const GpuCapacity& c, int64_t slot) {
  if (!c.by_weight) return 0;
  const float weight = add_rn(c.probs[slot], 0.0f);
  if (weight != weight) return ~0U;
  const uint32_t bits = bits_of(weight);
  return bits >> 31 != 0 ? bits : 0x7FFFFFFFU - bits;
}

INGOT_KERNEL(kCountThreads)
copy_kernel(const GpuCapacity c) {
  const int64_t s = global_thread();
  if (s >= c.slots) return;
  c.kept_ids[s] = c.ids[s];
  c.kept_probs[s] = c.ids[s] < 0 ? 0.0f : c.probs[s];
}

/// Choices of the expert whose keys have `high` above the digit at `shift`, counted by that digit.
struct DigitCounts {
  int32_t x[kDigits];
};
INGOT_INLINE void count_digits(BlockCounts& counts, DigitCounts& of, const GpuCapacity& c, int32_t expert,
                               uint32_t high, int shift) {
  int32_t own[kDigits] = {};
  for (int64_t s = thread_index(); s < c.slots; s += kCountThreads) {
    const uint32_t key = c.ids[s] == expert ? key_of(c, s) : 0;
    if (c.ids[s] != expert || key >> shift >> kDigitBits != high) continue;
    INGOT_UNROLL
    for (int d = 0; d < kDigits; ++d) own[d] += (key >> shift) % kDigits == static_cast<unsigned>(d) ? 1 : 0;
  }
  INGOT_UNROLL
  for (int d = 0; d < kDigits; ++d) of.x[d] = count_before(counts, own[d]).all;
}

/// The largest key that the expert keeps, and how many of it.
struct Last {
  uint32_t key;
  int64_t count;
};
INGOT_INLINE Last last_kept(BlockCounts& counts, const GpuCapacity& c, int32_t expert) {
  Last last{0, c.limit};
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    DigitCounts digits;
    count_digits(counts, digits, c, expert, last.key, shift);
    uint32_t digit = 0;
    while (digit + 1 < kDigits && last.count > digits.x[digit]) last.count -= digits.x[digit++];
    last.key = last.key << kDigitBits | digit;
  }
  return last;
}

INGOT_KERNEL(kCountThreads)
drop_kernel(const GpuCapacity c) {
  INGOT_SHARED(BlockCounts, counts);
  const auto expert = static_cast<int32_t>(block_index());
  int32_t own = 0;
  for (int64_t s = thread_index(); s < c.slots; s += kCountThreads) own += c.ids[s] == expert ? 1 : 0;
  if (count_before(counts, own).all <= c.limit) return;
  const Last last = last_kept(counts, c, expert);
  int64_t before = 0;  // choices of that key
  for (int64_t first = 0; first < c.slots; first += kCountThreads * kSlotsOfThread) {
    const int64_t begin = first + thread_index() * kSlotsOfThread;  // the thread's slots are neighbours
    const auto is_of = [&](int64_t s) { return s < c.slots && c.ids[s] == expert; };
    int32_t mine = 0;
    for (int64_t s = begin; s < begin + kSlotsOfThread; ++s)
      mine += is_of(s) && key_of(c, s) == last.key ? 1 : 0;
    const Count count = count_before(counts, mine);
    int64_t place = before + count.before;
    for (int64_t s = begin; s < begin + kSlotsOfThread; ++s) {
      if (!is_of(s) || key_of(c, s) < last.key) continue;
      if (key_of(c, s) == last.key && place++ < last.count) continue;
      c.kept_ids[s] = -1, c.kept_probs[s] = 0.0f;
    }
    before += count.all;
  }
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
