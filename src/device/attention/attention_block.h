// What a block of threads of the GPU's attention kernels does: which 64 (query row, head of the group) pairs
// or 64 keys are its own, tiles in shared memory, and products of them (device/gemm/tile_products.h); for
// attention*.cu. What attention_rows.h does to a row of scores is done where they are.
#pragma once
#include "device/attention/attention_rows.h"
#include "device/attention/gpu_attention.h"
#include "device/gemm/tile_products.h"

namespace ingot::INGOT_ISA {

constexpr int kAttentionThreads = kTileThreads;
static_assert(kTile == kAttentionBlock);

/// Part of the spans of a call: those of one launch.
struct SpanTable {
  static constexpr int kMost = 96;
  struct Span {
    int32_t first_row, rows, phase, first_tile;
  };
  int32_t count, tiles;  ///< of all spans
  int32_t per_row;       ///< tiles are of 64 rows times so many
  Span spans[kMost];
};

/// What a block computes: a tile of a span, for a key-value head, and some channels of the result.
struct BlockPlace {
  int64_t first_row, rows, tile, group, first_channel;  ///< first_row, rows: of the span; no rows: nothing
  AttentionWindow window;
};
/// Of tile `unit` of the documents' list.
INGOT_INLINE BlockPlace place_in_list(const AttentionArgs& a, int64_t per_row, int64_t unit, bool backwards) {
  const DocumentList& list = a.documents;
  const int64_t own = list.of_tile(unit, per_row, kTile);
  if (own < 0) return {};
  const int64_t rows = list.rows(own), tiles = (rows * per_row + kTile - 1) / kTile,
                tile = unit - list.first_tile(own, per_row, kTile);
  if (tile >= tiles) return {};
  return {list.first_row(own),
          rows,
          backwards ? tiles - 1 - tile : tile,
          0,
          0,
          {a.window, a.window_block, list.phase(own)}};
}

/// Blocks: the parts of the channels of the first head, of the second, ..., of the second tile, ...
/// `backwards`: of a span the last tile is the first.
INGOT_INLINE BlockPlace place_of_block(const AttentionArgs& a, const SpanTable& table, int64_t channel_parts,
                                       int channels, bool backwards) {
  const int64_t block = block_index(), unit = block / channel_parts / a.kv_heads;
  if (a.documents.words != nullptr) {
    BlockPlace at = place_in_list(a, table.per_row, unit, backwards);
    at.group = block / channel_parts % a.kv_heads, at.first_channel = block % channel_parts * channels;
    return at;
  }
  int low = 0;
  for (int high = table.count; high - low > 1;) {
    const int middle = (low + high) / 2;
    if (table.spans[middle].first_tile <= unit)
      low = middle;
    else
      high = middle;
  }
  const int64_t first = table.spans[low].first_tile,
                end = low + 1 < table.count ? table.spans[low + 1].first_tile : table.tiles;
  return {table.spans[low].first_row,
          table.spans[low].rows,
          backwards ? end - 1 - unit : unit - first,
          block / channel_parts % a.kv_heads,
          block % channel_parts * channels,
          {a.window, a.window_block, table.spans[low].phase}};
}

/// 64 rows of scores, or of what becomes of them.
struct ScoreTile {
  alignas(16) float x[kTile][kTileStride];
};
struct DepthTiles {
  DepthTile of[2];
};
/// Of 64 pairs: the token in its document, and the head. No pair: token -1.
struct PairTile {
  int32_t token[kTile], head[kTile];
};

/// Names the pairs from `first` on of those that end before `end`, of a key-value head's group.
INGOT_INLINE void name_pairs(PairTile& pairs, int64_t first, int64_t end, int64_t group,
                             int64_t group_heads) {
  const int i = static_cast<int>(thread_index());
  if (i >= kTile) return;
  const int64_t pair = first + i;
  pairs.token[i] = pair < end ? static_cast<int32_t>(pair / group_heads) : -1;
  pairs.head[i] = static_cast<int32_t>(group * group_heads + pair % group_heads);
}

/// Rows of a packed tensor, by their place in a document.
template <class T>
struct Rows {
  const T* first;  ///< the document's first row
  int64_t stride;
  int64_t width;  ///< of a head

  INGOT_INLINE const T* at(int64_t token, int64_t head) const {
    return first + token * stride + head * width;
  }
};
template <class T>
INGOT_INLINE Rows<T> rows_of(const void* x, int64_t stride, int64_t width, const BlockPlace& at) {
  return {static_cast<const T*>(x) + at.first_row * stride, stride, width};
}

/// to.x[c][i] = channel first + c of row i, 0 where there is no such row; row(i) is nullptr then.
template <class T, class F>
INGOT_INLINE void load_turned(DepthTile& to, int64_t first, int64_t width, F&& row) {
  const int c = static_cast<int>(thread_index()) % kDepth;
  if (first + c >= width) return;
  INGOT_UNROLL
  for (int n = 0; n < kTile; n += kAttentionThreads / kDepth) {
    const int i = n + static_cast<int>(thread_index()) / kDepth;
    const T* x = row(i);
    to.x[c][i] = x != nullptr ? widened(x[first + c]) : 0.0f;
  }
}
/// to.x[i][c] = channel first + c of row i, for 16 rows; 0 where there is none.
template <class T, class F>
INGOT_INLINE void load_rows(DepthTile& to, int64_t first, int64_t width, F&& row) {
  const int c = static_cast<int>(thread_index()) % kTile;
  if (first + c >= width) return;
  INGOT_UNROLL
  for (int n = 0; n < kDepth; n += kAttentionThreads / kTile) {
    const int i = n + static_cast<int>(thread_index()) / kTile;
    const T* x = row(i);
    to.x[i][c] = x != nullptr ? widened(x[first + c]) : 0.0f;
  }
}

/// Adds for 16 keys from `first` on scores.x[row][key] b.x[key][column].
INGOT_INLINE void add_keys(Outputs& sums, const ScoreTile& scores, int first, const DepthTile& b) {
  INGOT_UNROLL
  for (int four = 0; four < kDepth; four += 4) {
    float x[kEach][4];
    INGOT_UNROLL
    for (int r = 0; r < kEach; ++r) load4(&scores.x[first_row_of_thread() + r][first + four], x[r]);
    INGOT_UNROLL
    for (int k = 0; k < 4; ++k) {
      const Vec y = columns_of(b.x[four + k]);
      INGOT_UNROLL
      for (int r = 0; r < kEach; ++r) sums.row[r] = fma(set1(x[r][k]), y, sums.row[r]);
    }
  }
}
/// Adds for 16 pairs from `first` on scores.x[pair][row] b.x[pair][column]: rows are keys.
INGOT_INLINE void add_pairs(Outputs& sums, const ScoreTile& scores, int first, const DepthTile& b) {
  INGOT_UNROLL
  for (int i = 0; i < kDepth; ++i) {
    float x[kEach];
    load4(&scores.x[first + i][first_row_of_thread()], x);
    const Vec y = columns_of(b.x[i]);
    INGOT_UNROLL
    for (int r = 0; r < kEach; ++r) sums.row[r] = fma(set1(x[r]), y, sums.row[r]);
  }
}

INGOT_INLINE void store_outputs(ScoreTile& to, const Outputs& from) {
  INGOT_UNROLL
  for (int r = 0; r < kEach; ++r) put_columns(to.x[first_row_of_thread() + r], from.row[r]);
}

/// The products of 64 pairs, whose rows are x, and 64 keys, whose rows are y: chains over ascending channels.
/// Meets the block.
template <class T, class X, class Y>
INGOT_INLINE Outputs products(DepthTiles& tiles, int64_t width, bool has_outputs, X&& x, Y&& y) {
  Outputs sums = no_outputs();
  for (int64_t c = 0; c < width; c += kDepth) {
    load_turned<T>(tiles.of[0], c, width, x);
    load_turned<T>(tiles.of[1], c, width, y);
    sync_threads();
    if (has_outputs) add_channels(sums, tiles.of[0], tiles.of[1], static_cast<int>(min64(kDepth, width - c)));
    sync_threads();
  }
  return sums;
}

/// The thread's columns of a row of results: n of `width`, or fewer, from channel `first` on.
template <class T>
INGOT_INLINE void put_channels(T* row, Vec x, int64_t first, int64_t width, bool accumulate) {
  const int64_t begin = first + vector_of_thread(), n = min64(kLanes, width - begin);
  if (n <= 0) return;
  if constexpr (sizeof(T) == 2)
    if (accumulate) x = rounded_to_bf16(x);
  put_n(row + begin, x, static_cast<int>(n), accumulate);
}

/// Calls f(SpanTable) for all spans that have rows, as many at a time as fit; tiles are of 64 rows times
/// `per_row`.
template <class F>
void each_table(const AttentionArgs& a, int64_t per_row, F&& f) {
  SpanTable table{};
  table.per_row = static_cast<int32_t>(per_row);
  if (a.documents.words != nullptr) {
    table.tiles = static_cast<int32_t>(a.documents.most_tiles(a.document_rows, per_row, kTile));
    if (a.document_rows > 0) f(table);
    return;
  }
  for (int64_t s = 0; s < a.span_count; ++s) {
    const AttentionSpan& span = a.spans[s];
    if (span.rows == 0) continue;
    if (table.count == SpanTable::kMost) f(table), table.count = table.tiles = 0;
    table.spans[table.count++] = {static_cast<int32_t>(span.first_row), static_cast<int32_t>(span.rows),
                                  static_cast<int32_t>(span.phase), table.tiles};
    table.tiles += static_cast<int32_t>((span.rows * per_row + kTile - 1) / kTile);
  }
  if (table.count > 0) f(table);
}

/// Calls f<T, parts of 64 channels in a block>(blocks for all channels).
template <class F>
void with_parts(DType type, int64_t channels, F&& f) {
  const auto of_type = [&]<class T>() {
    if (channels <= kTile)
      f.template operator()<T, 1>(1);
    else
      f.template operator()<T, 2>((channels + 2 * kTile - 1) / (2 * kTile));
  };
  if (type == DType::bf16)
    of_type.template operator()<bf16>();
  else
    of_type.template operator()<float>();
}

}  // namespace ingot::INGOT_ISA
