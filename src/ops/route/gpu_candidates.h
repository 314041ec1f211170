// The best k of a row's classes on a GPU, four threads a row: number j is the best behind number j - 1, so
// nothing is kept per class. Ties go to the lowest class. For *.cu of route and assign.
#pragma once
#include "device/simd/loops.h"

namespace ingot::INGOT_ISA {

/// A class and its key (keys.h).
struct Candidate {
  int32_t key, index;
};
INGOT_INLINE Candidate above_all() {
  return {INT32_MAX, -1};
}
INGOT_INLINE Candidate below_all() {
  return {INT32_MIN, INT32_MAX};
}
INGOT_INLINE bool is_before(Candidate a, Candidate b) {
  return a.key > b.key || (a.key == b.key && a.index < b.index);
}
INGOT_INLINE int32_t shuffled(int32_t x, unsigned apart) {
  const float other = shuffle_xor<kThreadsOfRow>(as_float_bits(static_cast<uint32_t>(x)), apart);
  return static_cast<int32_t>(bits_of(other));
}

/// The first after `last` of the classes begin .. end that take part; all four threads know it. keys(c, n):
/// of n classes from c on.
template <class Keys, class TakesPart>
INGOT_INLINE Candidate next_candidate(int64_t begin, int64_t end, Candidate last, TakesPart&& takes_part,
                                      Keys&& keys) {
  Candidate best = below_all();
  each_vector(end - begin, [&](int64_t i, int n) {
    const VecI own = keys(begin + i, n);
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q) {
      const Candidate c{own.v[q], static_cast<int32_t>(begin + i) + first_lane() + q};
      if (first_lane() + q < n && takes_part(c.index) && is_before(last, c) && is_before(c, best)) best = c;
    }
  });
  INGOT_UNROLL
  for (unsigned apart = 2; apart >= 1; apart /= 2) {
    const Candidate other{shuffled(best.key, apart), shuffled(best.index, apart)};
    if (is_before(other, best)) best = other;
  }
  return best;
}

/// put(number, class) of the k best of n classes, ascending by class.
template <class Keys, class TakesPart, class Put>
INGOT_INLINE void each_chosen(int64_t n, int64_t k, TakesPart&& takes_part, Keys&& keys, Put&& put) {
  Candidate last = above_all();
  for (int64_t j = 0; j < k; ++j) last = next_candidate(0, n, last, takes_part, keys);
  float written = 0;  // by all four threads
  each_vector(n, [&](int64_t first, int count) {
    const VecI own_keys = keys(first, count);
    bool chosen[kLanesOfThread];
    float own = 0;
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q) {
      const Candidate c{own_keys.v[q], static_cast<int32_t>(first) + first_lane() + q};
      chosen[q] = first_lane() + q < count && takes_part(c.index) && !is_before(last, c);
      own += chosen[q] ? 1.0f : 0.0f;
    }
    const float beside = shuffle_xor<kThreadsOfRow>(own, 1), pair = own + beside,
                far = shuffle_xor<kThreadsOfRow>(pair, 2);
    const unsigned t = thread_index() % kThreadsOfRow;
    auto at = static_cast<int64_t>(written + (t % 2 == 1 ? beside : 0.0f) + (t >= 2 ? far : 0.0f));
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q)
      if (chosen[q]) put(at++, static_cast<int32_t>(first) + first_lane() + q);
    written += pair + far;
  });
}

}  // namespace ingot::INGOT_ISA
