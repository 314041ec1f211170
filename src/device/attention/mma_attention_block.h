// What a block of threads does of attention on tensor cores: 64 rows, of which each warp has 16, against
// some columns at a time, 64 or fewer, which lie in shared memory; for mma_attention*.cu. Operands are bf16,
// scores and sums fp32. Which rows are the block's own says attention_block.h.
#pragma once
#include "device/attention/attention_block.h"
#include "device/attention/mma_panel.h"
#include "device/gemm/mma_block.h"

namespace ingot::INGOT_ISA {

constexpr int kMmaAttentionThreads = kTile / kPanel * kMmaThreads;
constexpr int kTilePanels = kTile / kPanel;
constexpr int kSlab = 128;  ///< channels in shared memory at a time

// Where code that is written once more would take registers that sums need.
#if defined(INGOT_ISA_emulated)
#define INGOT_NO_UNROLL
#else
#define INGOT_NO_UNROLL _Pragma("unroll 1")
#endif

/// 128 channels of so many panels of rows, in pairs along the channels. Rows that are read together begin in
/// other banks.
template <int kPanels>
struct ChannelTile {
  static constexpr int kRows = kPanels * kPanel, kStride = kSlab / 2 + 4;
  alignas(16) uint32_t pair[kRows * kStride];
};
/// The same in pairs along the rows, for each channel.
template <int kPanels>
struct RowTile {
  static constexpr int kPairs = kPanels * kPanel / 2, kStride = kPairs + 4;
  alignas(16) uint32_t pair[kSlab * kStride];
};

INGOT_INLINE int first_row_of_panel() {
  return static_cast<int>(thread_index()) / kMmaThreads * kPanel;
}

/// Channels c to c + 3 of a row, of `width`; zeros where there is none. `along`: from channel to channel.
INGOT_INLINE void load_channels(const bf16* row, int64_t along, int64_t c, int64_t width, bf16 (&to)[4]) {
  const int64_t count = row != nullptr ? width - c : 0;
  if (along == 1) return load_four(row + (count > 0 ? c : 0), count, to);
  INGOT_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = i < count ? row[(c + i) * along] : bf16{};
}
INGOT_INLINE uint32_t pair_of(bf16 even, bf16 odd) {
  return even.bits | static_cast<uint32_t>(odd.bits) << 16;
}
/// How many of a slab's channels from `first` on are there, whole panels.
INGOT_INLINE int slab_channels(int64_t first, int64_t width) {
  return static_cast<int>(min64(kSlab, (width - first + kPanel - 1) / kPanel * kPanel));
}

/// Channels `first` and on of row(i), nullptr where there is none.
template <int kPanels, class F>
INGOT_INLINE void load_tile(ChannelTile<kPanels>& to, int64_t first, int64_t width, int64_t along, F&& row) {
  constexpr int kRows = ChannelTile<kPanels>::kRows, kFours = kSlab / 4;
  const int channels = slab_channels(first, width);
  INGOT_NO_UNROLL
  for (int e = static_cast<int>(thread_index()); e < kRows * kFours; e += kMmaAttentionThreads) {
    // Neighbours have what lies beside each other.
    const int i = along == 1 ? e / kFours : e % kRows, c = (along == 1 ? e % kFours : e / kRows) * 4;
    if (c >= channels) continue;
    bf16 x[4];
    load_channels(row(i), along, first + c, width, x);
    uint32_t* const pairs = to.pair + i * ChannelTile<kPanels>::kStride + c / 2;
    pairs[0] = pair_of(x[0], x[1]), pairs[1] = pair_of(x[2], x[3]);
  }
}
template <int kPanels, class F>
INGOT_INLINE void load_tile(RowTile<kPanels>& to, int64_t first, int64_t width, F&& row) {
  constexpr int kPairs = RowTile<kPanels>::kPairs;
  const int channels = slab_channels(first, width);
  INGOT_NO_UNROLL
  for (int e = static_cast<int>(thread_index()); e < kPairs * kSlab / 4; e += kMmaAttentionThreads) {
    const int c = (e % 4 + e / (4 * kPairs) * 4) * 4, i = e / 4 % kPairs;
    if (c >= channels) continue;
    bf16 even[4], odd[4];
    load_channels(row(2 * i), 1, first + c, width, even);
    load_channels(row(2 * i + 1), 1, first + c, width, odd);
    INGOT_UNROLL
    for (int j = 0; j < 4; ++j) to.pair[(c + j) * RowTile<kPanels>::kStride + i] = pair_of(even[j], odd[j]);
  }
}

/// 16 channels from c on of the warp's rows, in memory.
template <class F>
INGOT_INLINE MmaRows rows_in_memory(int64_t c, int64_t width, F&& row) {
  uint32_t pair[kPanelRows][2];
  INGOT_UNROLL
  for (int r = 0; r < kPanelRows; ++r) {
    const bf16* const x = row(first_row_of_panel() + row_of_panel(r));
    INGOT_UNROLL
    for (int p = 0; p < 2; ++p) {
      const int64_t channel = c + column_of_panel(2 * p);
      const bf16 none{};
      pair[r][p] = pair_of(x != nullptr && channel < width ? x[channel] : none,
                           x != nullptr && channel + 1 < width ? x[channel + 1] : none);
    }
  }
  return rows_of_pairs(pair);
}

/// Adds the products of the warp's rows and the first `columns` columns over ascending channels; row(i) and
/// column(j) are where they lie, nullptr for none. Meets the block. Nobody may read the tile any more that
/// this takes; it is read still when this returns.
template <int kPanels, class X, class Y>
INGOT_INLINE void add_scores(Panel (&sum)[kPanels], ChannelTile<kPanels>& tile, int64_t width,
                             int64_t columns, X&& row, int64_t along, Y&& column) {
  constexpr int kStride = ChannelTile<kPanels>::kStride;
  INGOT_NO_UNROLL
  for (int64_t first = 0; first < width; first += kSlab) {
    if (first > 0) sync_threads();
    load_tile(tile, first, width, along, column);
    sync_threads();
    INGOT_NO_UNROLL
    for (int c = 0; c < slab_channels(first, width); c += kPanel) {
      const MmaRows x = rows_in_memory(first + c, width, row);
      INGOT_UNROLL
      for (int j = 0; j < kPanels; ++j)
        if (j * kPanel < columns) add_product(sum[j], x, tile.pair + j * kPanel * kStride + c / 2, kStride);
    }
  }
}

/// Adds the warp's rows of x, rounded to bf16, times the tile over its first `rows` rows; panels of channels
/// from `first` of `width` on.
template <int kSums, int kPanels>
INGOT_INLINE void add_rows(Panel (&sum)[kSums], const Panel (&x)[kPanels], const RowTile<kPanels>& tile,
                           int64_t rows, int64_t first, int64_t width) {
  constexpr int kStride = RowTile<kPanels>::kStride;
  INGOT_UNROLL
  for (int j = 0; j < kPanels; ++j) {
    if (j * kPanel >= rows) continue;
    const MmaRows own = rows_of_panel(x[j]);
    INGOT_UNROLL
    for (int c = 0; c < kSums; ++c)
      if (first + c * kPanel < width)
        add_product(sum[c], own, tile.pair + c * kPanel * kStride + j * kPanel / 2, kStride);
  }
}

/// Calls f(channel, Vec element) for the thread's results of its row r that exist.
template <int kPanels, class F>
INGOT_INLINE void each_result(const Panel (&sum)[kPanels], int r, int64_t first, int64_t width, F&& f) {
  INGOT_UNROLL
  for (int c = 0; c < kPanels; ++c) {
    const Vec x = sum[c].row(r);
    INGOT_UNROLL
    for (int i = 0; i < kLanesOfThread; ++i) {
      const int64_t channel = first + c * kPanel + column_of_panel(i);
      if (channel < width) f(channel, x.v[i]);
    }
  }
}

/// Calls f<parts of 64 channels in a block, whether scores are capped>(blocks for all channels).
template <class F>
void with_mma_parts(int64_t channels, float softcap, F&& f) {
  const auto with_cap = [&]<bool kCap>() {
    if (channels <= kTile)
      f.template operator()<1, kCap>(1);
    else
      f.template operator()<2, kCap>((channels + kSlab - 1) / kSlab);
  };
  if (softcap > 0)
    with_cap.template operator()<true>();
  else
    with_cap.template operator()<false>();
}

}  // namespace ingot::INGOT_ISA
