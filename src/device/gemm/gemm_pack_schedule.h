// When A and B are packed: a task makes no pass over memory of its own where the micro-kernel can pack on the
// way. Included only by isa_gemm.cpp.
//
// BLIS packs both operands before the loops that read them. Here (gains as measured when each was added, fp32
// GFLOP/s of two threads with a peak of 495 unless said otherwise; NN, TN, NT as in BLAS):
// - A in place: A whose words are in memory (f32, pairs with an even k) is read there. 2048^3 NN 83 -> 91 %
//   of peak.
// - A on the way: else the tasks of the first micro-panel pack it, a group of 2 mr rows at a time. Stored [k,
//   m], the group's first tile stores what it reads; stored [m, k], the group is packed before its tiles.
//   3072x768x1024 TN 421 -> 440, bf16 709 -> 805.
// - B by the first tile: f32 B stored [k, n] is packed by the first row of tiles, which reads it in place and
//   stores it. Eight experts of 64 rows NN 81 -> 88 % of peak.
// - B ahead: the last tiles of a k-block pack the next packed panel of B, of this task or of the thread's
//   next, into a second buffer, a vector every fourth k-step; bf16 always, f32 only where A is packed.
//   8208x256x1024 TN 393 -> 409, bf16 708 -> 800.
// - B prefetched: else these tiles prefetch it into the level 2 cache. The first tiles would do so too early,
//   as A passes through that cache. 2304x768x1024 TN 411 -> 431.
// - B before the loop: what none of these covers is packed at the start of the k-block.
#pragma once
#include "device/gemm/gemm_k_step.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/int8_kernels.h"
#include "device/gemm/micro_kernel_operands.h"

namespace ingot::INGOT_ISA {
namespace {

// ---- B at the start of a k-block

/// The packed panel of B of one k-block: micro-panel j at data + micro_panel * j, with rows of its own width.
struct PackedPanelB {
  const float* data;
  int64_t micro_panel;  ///< words
  int64_t cols = kNr;   ///< of every micro-panel but the last
};

/// Whether the first row of tiles packs a micro-panel of B: f32 stored [k, n], whole vectors, whole tiles.
bool tile_packs_b(const GemmTask& t, int64_t cols) {
  return t.b.type == DType::f32 && !t.b.round && !t.b.k_contiguous() && !t.b_packed && !t.pairs &&
         !t.lower_only && t.rows >= kMr && cols % kLanes == 0;
}

/// k-steps k .. k+kc of a micro-panel of packed pairs as f32, for an f32 A.
void widen_micro_panel(const float* pairs, int64_t width, int64_t k, int64_t kc, float* out) {
  for (int64_t q = k; q < k + kc; ++q, out += width) {
    const float* row = pairs + q / 2 * width;
    for (int64_t j = 0; j < width; j += kLanes) {
      const Vec x = load(row + j);
      store(out + j, q % 2 == 0 ? TwoFmaStep::low(x) : TwoFmaStep::high(x));
    }
  }
}

/// k-steps k .. k+kc of int8 PackedWeights as f32.
PackedPanelB widen_int8(const GemmTask& t, int64_t k, int64_t kc, float* buffer) {
  const int64_t bytes = int8_panel_bytes(kNr, t.depth);
  const std::byte* packed = static_cast<const std::byte*>(t.b.base) + t.col0 / kNr * bytes;
  for (int64_t j = 0; j < t.cols; j += kNr)
    int8_widen({packed + j / kNr * bytes, width_of(min64(kNr, t.cols - j)), t.depth}, k, kc, buffer + j * kc);
  return {buffer, kNr * kc};
}

/// Columns of every micro-panel but the last where `cols` columns of B are packed: micro-panels are about
/// equally wide.
int64_t even_width(int64_t cols) {
  return width_of(ceil_div(cols, ceil_div(cols, kNr)));
}

/// The packed panel of k-steps k .. k+kc: in `buffer`, except f32 words and pairs of PackedWeights. `ready`:
/// it is there already.
PackedPanelB pack_panel_b(const GemmTask& t, int64_t k, int64_t kc, float* buffer, bool ready) {
  if (t.b_packed && t.b.type == DType::u8) return widen_int8(t, k, kc, buffer);
  const bool packed_pairs = t.b_packed && t.b.type == DType::bf16;
  const int64_t packed_words = kNr * (packed_pairs ? ceil_div(t.depth, 2) : t.depth);
  const float* packed = static_cast<const float*>(t.b.base) + t.col0 / kNr * packed_words;
  if (t.b_packed && packed_pairs == t.pairs)  // the last micro-panel may be narrower
    return {packed + k * width_of(min64(kNr, t.cols)), packed_words};
  const int64_t even = t.b_packed ? kNr : even_width(t.cols);
  for (int64_t j = 0; j < t.cols && !ready; j += even) {
    const int64_t cols = min64(even, t.cols - j);
    float* out = buffer + j * kc;
    if (t.b_packed)
      widen_micro_panel(packed + j / kNr * packed_words, width_of(cols), k, kc, out);
    else if (!tile_packs_b(t, cols))
      gemm_pack_b({t.b, t.pairs, t.depth, k, kc, t.col0 + j, cols, out});
  }
  return {buffer, even * kc, even};
}

// ---- the next packed panel of B, by the last tiles of a k-block

/// k-steps for a line of B: one line each k-step would be more than memory delivers.
constexpr int64_t kStepsPerLine = 4;

/// The share of each of the last `tiles` tiles of a k-block: it packs a part of a vector of columns; or
/// prefetches some columns of B stored [n, k], or a part of the rows of one cache line's width of B stored
/// [k, n].
struct NextB {
  GemmNextPanel panel;
  float* buffer = nullptr;       ///< where it is packed; nullptr: the tiles prefetch
  int64_t steps_per_line = 1;    ///< kStepsPerLine where there are tiles enough
  int64_t first = 0, tiles = 0;  ///< the number of the first of them
  PrefetchLines lines{nullptr, 0, 1, 0};
  int64_t parts = 1;  ///< tiles that share the rows of one line's width
  int64_t part_jump = 0,
          jump = 0;  ///< bytes from part to part; from one line's width, or some columns, to the next
};

/// The panel of the task's own k-steps from k on.
GemmNextPanel panel_from(const GemmTask& t, int64_t k) {
  const int64_t elements = t.pairs ? 2 : 1, kc = min64(t.kc, t.k1 - k);
  return {t.b.at(t.col0, k * elements), kc, t.cols, !t.pairs || 2 * (k + kc) <= t.depth};
}

/// Whether whole tiles of kc k-steps can pack it. In f32 it repays only where reading A costs nothing extra.
bool tiles_pack_next(const GemmTask& t, const GemmNextPanel& next, int64_t kc) {
  const bool rows = !t.b.k_contiguous() && !t.lower_only && !t.packed_a.packs;
  const bool repays = t.pairs || (t.b.type == DType::f32 && !t.b.round && t.a_path == APath::packed);
  return rows && repays && next.full_pairs && next.kc <= kc && next.kc % kStepsPerLine == 0 &&
         next.cols % kLanes == 0;
}

void plan_prefetch(const GemmTask& t, int64_t whole_tiles, NextB& n) {
  const int64_t size = t.b.size(), elements = t.pairs ? 2 : 1, row = t.b.ld() * size, kc = n.panel.kc;
  const int64_t lines_of_column = ceil_div(kc * elements * size, 64),
                columns = kc / lines_of_column > 1 ? kc / lines_of_column : 1;
  const int64_t least =
      t.b.k_contiguous() ? ceil_div(n.panel.cols, columns) : ceil_div(n.panel.cols * size, 64);
  n.steps_per_line = whole_tiles < 2 * kStepsPerLine * least ? 1 : kStepsPerLine;
  n.tiles = least * n.steps_per_line;
  n.first = whole_tiles > n.tiles ? whole_tiles - n.tiles : 0;
  const auto* from = static_cast<const char*>(n.panel.b);
  if (t.b.k_contiguous()) {
    n.lines = {from, 64 / n.steps_per_line, lines_of_column * n.steps_per_line, row - lines_of_column * 64};
    n.jump = ceil_div(columns, n.steps_per_line) * row;
  } else {
    n.lines = {from, 0, n.steps_per_line, elements * row};
    n.parts = n.steps_per_line, n.part_jump = kc / n.steps_per_line * elements * row, n.jump = 64;
  }
}

NextB plan_next_b(const GemmTask& t, const GemmNextPanel& next, int64_t kc, float* buffer, bool ready) {
  NextB n;
  if (t.b_packed || next.b == nullptr || next.kc == 0) return n;
  n.panel = next;
  const int64_t micro_panels = ceil_div(t.cols, kNr), whole = t.rows / kMr * micro_panels;
  const int64_t free = whole - (ready || t.pairs ? 0 : micro_panels), vectors = next.cols / kLanes;
  if (!tiles_pack_next(t, next, kc) || free < vectors) {
    plan_prefetch(t, whole, n);
    return n;
  }
  n.buffer = buffer;
  n.steps_per_line = free >= 2 * kStepsPerLine * vectors ? kStepsPerLine : 1;
  n.tiles = vectors * n.steps_per_line, n.first = whole - n.tiles;
  return n;
}

/// What tile `number` of the k-block packs of it.
NextBVectors packed_by(const GemmTask& t, const NextB& n, int64_t number) {
  const int64_t part = number - n.first;
  if (n.buffer == nullptr || part < 0 || part >= n.tiles) return {nullptr, 0, nullptr, 0, 0, 1};
  const int64_t size = t.b.size(), elements = t.pairs ? 2 : 1, ldb = t.b.ld();
  const int64_t col = part / n.steps_per_line * kLanes, count = n.panel.kc / n.steps_per_line,
                k = part % n.steps_per_line * count;
  const int64_t even = even_width(n.panel.cols), micro_panel = col / even * even,
                width = width_of(min64(even, n.panel.cols - micro_panel));
  return {static_cast<const char*>(n.panel.b) + (k * elements * ldb + col) * size,
          ldb,
          n.buffer + micro_panel * n.panel.kc + k * width + col - micro_panel,
          width,
          count,
          n.steps_per_line};
}

// ---- A

/// Packed A of the k-block at k, from row i of the task on.
float* packed_a(const GemmTask& t, int64_t k, int64_t kc, int64_t i) {
  return t.packed_a.block + (k - t.k0) * t.packed_a.rows_padded + (t.packed_a.row + i) * kc;
}

/// Whether the task packs the group of rows that begins at row i.
bool packs_group(const GemmTask& t, int64_t i) {
  return t.packed_a.packs && i % kRowGroup == 0;
}

/// Whether the group's first tile packs it: stored [k, m], one vector of rows, and no k-step lacks half of
/// its pair.
bool tile_packs_a(const GemmTask& t, int64_t k, int64_t kc, int64_t i) {
  return kLanes == kRowGroup && packs_group(t, i) && !t.a.k_contiguous() && i + kRowGroup <= t.rows &&
         !(t.pairs && k + kc > t.depth / 2);
}

void pack_group(const GemmTask& t, int64_t k, int64_t kc, int64_t i) {
  gemm_pack_a({{t.a.at(i, 0), t.a.type, t.a.stride, t.a.k_stride},
               t.pairs,
               t.depth,
               min64(kRowGroup, t.rows - i),
               k,
               kc,
               packed_a(t, k, kc, i)});
}

}  // namespace
}  // namespace ingot::INGOT_ISA
