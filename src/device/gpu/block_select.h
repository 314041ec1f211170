// The smallest keys of many, found by the threads of a block, four bits at a time: a radix selection without
// scratch, in which no order of threads matters; for *.cu.
#pragma once
#include "device/gpu/block_count.h"

namespace ingot::INGOT_ISA {

constexpr int kDigitBits = 4, kDigits = 1 << kDigitBits, kSlotsOfThread = 8;

/// Ascends where values descend, both zeros equal, NaN last.
INGOT_INLINE uint32_t descending_key(float x) {
  x = add_rn(x, 0.0f);
  if (x != x) return ~0U;
  const uint32_t bits = bits_of(x);
  return bits >> 31 != 0 ? bits : 0x7FFFFFFFU - bits;
}

/// Slots whose keys have `high` above the digit at `shift`, counted by that digit.
struct DigitCounts {
  int32_t x[kDigits];
};
template <class TakesPart, class Key>
INGOT_INLINE void count_digits(BlockCounts& counts, DigitCounts& of, int64_t slots, uint32_t high, int shift,
                               TakesPart&& takes_part, Key&& key_of) {
  int32_t own[kDigits] = {};
  for (int64_t s = thread_index(); s < slots; s += kCountThreads) {
    const uint32_t key = takes_part(s) ? key_of(s) : 0;
    if (!takes_part(s) || key >> shift >> kDigitBits != high) continue;
    INGOT_UNROLL
    for (int d = 0; d < kDigits; ++d) own[d] += (key >> shift) % kDigits == static_cast<unsigned>(d) ? 1 : 0;
  }
  INGOT_UNROLL
  for (int d = 0; d < kDigits; ++d) of.x[d] = count_before(counts, own[d]).all;
}

/// The largest key that is kept where `limit` slots are, and how many of it.
struct Last {
  uint32_t key;
  int64_t count;
};
/// Of the slots that take part; every thread of the block comes here.
template <class TakesPart, class Key>
INGOT_INLINE Last last_kept(BlockCounts& counts, int64_t slots, int64_t limit, TakesPart&& takes_part,
                            Key&& key_of) {
  Last last{0, limit};
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    DigitCounts digits;
    count_digits(counts, digits, slots, last.key, shift, takes_part, key_of);
    uint32_t digit = 0;
    while (digit + 1 < kDigits && last.count > digits.x[digit]) last.count -= digits.x[digit++];
    last.key = last.key << kDigitBits | digit;
  }
  return last;
}

/// f(slot, whether it is kept) of each slot that takes part; of equal keys the first slots are.
template <class TakesPart, class Key, class F>
INGOT_INLINE void each_judged(BlockCounts& counts, int64_t slots, const Last& last, TakesPart&& takes_part,
                              Key&& key_of, F&& f) {
  int64_t before = 0;  // slots of the last key
  for (int64_t first = 0; first < slots; first += kCountThreads * kSlotsOfThread) {
    const int64_t begin = first + thread_index() * kSlotsOfThread;  // the thread's slots are neighbours
    const int64_t end = begin + kSlotsOfThread < slots ? begin + kSlotsOfThread : slots;
    int32_t mine = 0;
    for (int64_t s = begin; s < end; ++s) mine += takes_part(s) && key_of(s) == last.key ? 1 : 0;
    const Count count = count_before(counts, mine);
    int64_t place = before + count.before;
    for (int64_t s = begin; s < end; ++s) {
      if (!takes_part(s)) continue;
      const uint32_t key = key_of(s);
      f(s, key < last.key || (key == last.key && place++ < last.count));
    }
    before += count.all;
  }
}

}  // namespace ingot::INGOT_ISA
