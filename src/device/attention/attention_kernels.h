// The interface between attention.cpp (tasks, threads) and isa_attention*.cpp. Internal to this folder.
#pragma once
#include <cstdint>

#include "base/round.h"
#include "device/attention/attention.h"
#include "device/simd/isa.h"

namespace ingot {

/// Rows row0 .. row1 of a span, the query heads of one key-value head.
struct AttentionRange {
  const AttentionSpan* span;
  int64_t group, row0, row1;
};

/// What one thread computes at a time in forward.
struct AttentionTask {
  const AttentionArgs* args;
  AttentionRange range;
  const AttentionRange* next;  ///< what this thread likely computes next, to prefetch; nullptr: unknown
  float* scratch;              ///< attention_scratch(...) floats, 64-byte aligned
  float* max_logit;            ///< [heads of the group], raised to the task's maxima; nullptr: not wanted
};

/// All gradients of one span and key-value head.
struct AttentionBackwardTask {
  const AttentionBackwardArgs* args;
  const AttentionSpan* span;
  int64_t group;
  const AttentionSpan* next_span;  ///< likely next for this thread; nullptr: unknown
  int64_t next_group;
  float* scratch;  ///< attention_backward_scratch(...) floats
};

INGOT_ISA_KERNEL(void, attention_forward_task, (const AttentionTask& t));
INGOT_ISA_KERNEL(void, attention_backward_task, (const AttentionBackwardTask& t));

constexpr int64_t kAttentionTile = 6;           // rows of the register tile, on every instruction set
constexpr int64_t kAttentionBackwardRows = 66;  // rows whose P and dS are held at a time in backward

/// Width of a row in scratch.
constexpr int64_t attention_padded(int64_t width) {
  return round_up(width, 16);
}

/// Floats of scratch for `rows` (query row, head) pairs, keys of `width` and values of `values` channels.
constexpr int64_t attention_scratch(int64_t rows, int64_t width, int64_t values) {
  const int64_t w = attention_padded(width) + attention_padded(values);
  return rows * (w + 16 + 16) + kAttentionBlock * w + kAttentionTile * (kAttentionBlock + 16) + 64;
}
/// (row, head) pairs that backward runs against all keys at a time: with their gradients 400 KiB, which stay
/// in the level 2 cache.
constexpr int64_t attention_backward_rows(int64_t group_heads, int64_t width, int64_t values) {
  const int64_t fit =
      (int64_t{100} << 10) / (2 * attention_padded(width) + attention_padded(values)) / group_heads;
  return (fit > 16 ? fit : 16) * group_heads;
}
/// `rows` (row, head) pairs over `keys` keys; group_heads pairs a row.
constexpr int64_t attention_backward_scratch(int64_t rows, int64_t keys, int64_t group_heads, int64_t width,
                                             int64_t values) {
  const int64_t w = attention_padded(width), v = attention_padded(values);
  const int64_t most = attention_backward_rows(group_heads, width, values);
  const int64_t sums = rows > most ? ceil_div(keys, kAttentionBlock) : 1;  // blocks of dK and dV held
  return (rows < most ? rows : most) * (2 * w + v + 32) + kAttentionBlock * (2 * w + v + sums * (w + v)) +
         2 * kAttentionBackwardRows * kAttentionBlock + 64;
}

}  // namespace ingot
