// What attention.cpp (units of work, threads) asks of isa_attention*.cpp. Internal to this folder.
#pragma once
#include <cstdint>

#include "device/attention/attention.h"
#include "device/simd/isa.h"

namespace ingot {

/// Rows row0 .. row1 of a span, the query heads of one key-value head.
struct AttentionShare {
  const AttentionSpan* span;
  int64_t group, row0, row1;
};

/// One writer's share of a forward.
struct AttentionUnit {
  const AttentionArgs* args;
  AttentionShare share;
  const AttentionShare* next;  ///< what this thread likely does next, fetched meanwhile; nullptr: unknown
  float* scratch;              ///< attention_scratch(...) floats, 64-byte aligned
  float* max_logit;            ///< [heads of the group], raised to the unit's maxima; nullptr: not wanted
};

/// All gradients of one span and key-value head.
struct AttentionBackwardUnit {
  const AttentionBackwardArgs* args;
  const AttentionSpan* span;
  int64_t group;
  const AttentionSpan* next_span;  ///< what this thread likely does next; nullptr: unknown
  int64_t next_group;
  float* scratch;  ///< attention_backward_scratch(...) floats
};

INGOT_ISA_KERNEL(void, attention_unit, (const AttentionUnit& unit));
INGOT_ISA_KERNEL(void, attention_backward_unit, (const AttentionBackwardUnit& unit));

constexpr int64_t kAttentionTile = 6;       // rows of the register tile, on every instruction set
constexpr int64_t kAttentionBackRows = 66;  // rows whose P and dS are held at a time in backward

constexpr int64_t attention_padded(int64_t width) {
  return (width + 15) / 16 * 16;
}

/// Floats of scratch for `rows` (query row, head) pairs, keys of `width` and values of `values` channels.
constexpr int64_t attention_scratch(int64_t rows, int64_t width, int64_t values) {
  const int64_t w = attention_padded(width) + attention_padded(values);
  return rows * (w + 16 + 16) + kAttentionBlock * w + kAttentionTile * (kAttentionBlock + 16) + 64;
}
/// Pairs (row, head) that backward takes past all keys at a time: with their gradients 400 KiB, which stay in
/// level 2.
constexpr int64_t attention_back_rows(int64_t group_heads, int64_t width, int64_t values) {
  const int64_t fit =
      (int64_t{100} << 10) / (2 * attention_padded(width) + attention_padded(values)) / group_heads;
  return (fit > 16 ? fit : 16) * group_heads;
}
/// `rows` (row, head) pairs over `keys` keys; group_heads pairs a row.
constexpr int64_t attention_backward_scratch(int64_t rows, int64_t keys, int64_t group_heads, int64_t width,
                                             int64_t values) {
  const int64_t w = attention_padded(width), v = attention_padded(values);
  const int64_t most = attention_back_rows(group_heads, width, values);
  const int64_t sums =
      rows > most ? (keys + kAttentionBlock - 1) / kAttentionBlock : 1;  // blocks of dK and dV held
  return (rows < most ? rows : most) * (2 * w + v + 32) + kAttentionBlock * (2 * w + v + sums * (w + v)) +
         2 * kAttentionBackRows * kAttentionBlock + 64;
}

}  // namespace ingot
