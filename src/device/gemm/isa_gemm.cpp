// The loops around the micro-kernel for one task of a matrix product (BLIS's macro-kernel), for one
// instruction set:
//
//   for k in k0 .. k1 step kc             run_task:     a packed panel of B, kc x cols
//     for i in rows step 2 mr             run_group:    packs A, or loads and stores C where it is transposed
//       for i' in the group step mr       run_group
//         for j in cols step nr           run_tile:     the micro-kernel
//
// gemm.cpp has the loops over mc x kc blocks of A and over tasks. Where k has several blocks, the sums wait
// in C (f32), or in scratch where C is bf16.
#include <numeric>

#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_pack_schedule.h"
#include "device/gemm/gemm_shape.h"
#include "device/gemm/micro_kernel.h"
#include "device/gemm/micro_kernel_operands.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {
namespace {

/// Rows of C, of scratch of the same shape, or of scratch for one group of rows.
struct SumRows {
  char* first = nullptr;  ///< nullptr: zeros
  int64_t stride = 0;     ///< bytes
  int64_t mask = ~int64_t{0};

  char* row(int64_t i) const { return first == nullptr ? nullptr : first + (i & mask) * stride; }
};

/// The tiles of a k-block that share a micro-panel of B.
struct MicroPanel {
  int64_t cols;
  const float* b;
  SumRows in, out;
  MicroKernel whole;  ///< of a tile of mr rows that packs nothing
  MicroTile io;       ///< of the current tile; what all tiles share is set once
};

/// k-steps k .. k+kc of a task.
struct KBlock {
  int64_t k, kc;
  bool from_c, end;  ///< sums start from C or scratch; sums are complete
  bool sums_apart;   ///< between k-blocks sums are in buffers.c_sums
  PackedPanelB b;
  bool b_ready;  ///< packed before this k-block
  NextB next_b;
  int count = 0;
  MicroPanel panels[kMaxMicroPanels];
};

/// How many columns of A in place are prefetched ahead. Each is a cache line of its own: so many that those
/// in use stay in the sets of the level 1 cache that the stride meets, beside B's (rows 2 KiB apart meet two
/// sets: a tile of two vectors ran at .77 of peak with 48 columns, now .91); half as many where a k-step
/// takes less time.
int64_t columns_ahead(int64_t stride, int64_t vecs) {
  constexpr int64_t kWay = 4096, kMost = 48;  // bytes; columns
  const int64_t sets = min64(kWay / std::gcd(stride, kWay), kWay / 64);
  return min64(kMost, sets * (vecs == kVecs ? 8 : 4));
}

/// What the tiles of the micro-panel at column j share.
MicroPanel micro_panel_at(const GemmTask& t, const KBlock& block, int64_t j) {
  const bool keeps_sums = block.sums_apart && !block.end;
  const int64_t size = t.c.size(), width = round_up(t.cols, kNr);
  SumRows c{static_cast<char*>(t.c.base) + (t.col0 + j) * size, t.c.stride * size}, apart;
  if (t.c.transposed) c = {reinterpret_cast<char*>(t.buffers.c_rows + j), width * 4, kRowGroup - 1};
  if (block.sums_apart) apart = {reinterpret_cast<char*>(t.buffers.c_sums + j), width * 4};
  MicroPanel panel{};
  panel.cols = min64(block.b.cols, t.cols - j);
  panel.b = block.b.data + j / block.b.cols * block.b.micro_panel;
  panel.in = !block.from_c ? SumRows{} : block.sums_apart ? apart : c;
  panel.out = keeps_sums ? apart : c;
  const int64_t vecs = width_of(panel.cols) / kLanes;
  panel.whole = micro_kernel_of(t.pairs, t.a_path, kMr, vecs, vecs);
  MicroTile& io = panel.io;
  io.in_stride = panel.in.stride / 4;
  io.out_bf16 = t.c.type == DType::bf16 && !t.c.transposed && !keeps_sums;
  io.out_stride = panel.out.stride / (io.out_bf16 ? 2 : 4);
  io.bias_bf16 = t.c.bias_type == DType::bf16;
  io.bias = block.end && t.c.bias != nullptr && !t.c.transposed
                ? static_cast<const char*>(t.c.bias) + (t.col0 + j) * t.c.bias_size()
                : nullptr;
  io.next_stride = t.c.stride;
  io.ldb = t.b.ld();
  io.lda = t.a_path == APath::rows && t.pairs ? t.a.ld() / 2 : t.a.ld();
  io.a_distance = t.a_path == APath::columns ? columns_ahead(io.lda * 4, vecs) * io.lda : 0;
  io.a_panel = kMr * block.kc;
  return panel;
}

/// The k-block from k on. `buffer`: which of the two its packed panel of B is in; `ready`: it is there
/// already.
KBlock k_block_from(const GemmTask& t, int64_t k, int buffer, bool ready) {
  const int64_t kc = min64(t.kc, t.k1 - k), end = k + kc;
  KBlock block{k,
               kc,
               t.from_c || k > t.k0,
               t.last && end == t.k1,
               t.c.type == DType::bf16 && t.k1 - t.k0 > t.kc,
               pack_panel_b(t, k, kc, t.buffers.b[buffer], ready),
               ready,
               plan_next_b(t, end < t.k1 ? panel_from(t, end) : t.next, kc, t.buffers.b[1 - buffer], ready),
               0,
               {}};
  for (int64_t j = 0; j < t.cols; j += block.b.cols)
    block.panels[block.count++] = micro_panel_at(t, block, j);
  return block;
}

/// What tile `number`, at row i, prefetches: the columns of A to be packed next, the lines of transposed C
/// that its group will write, or a part of the next B.
PrefetchLines prefetched_by(const GemmTask& t, const KBlock& block, int64_t i, int64_t panel,
                            int64_t number) {
  if (t.packed_a.packs && !t.a.k_contiguous() && !packs_group(t, i)) {
    const int64_t elements = t.pairs ? 2 : 1;
    return {t.a.at(i + kMr, elements * block.k), elements * t.a.ld() * t.a.size(), block.kc + 1, 0};
  }
  if (t.c.transposed && i % kRowGroup != 0 && (block.end || !block.sums_apart)) {
    const int64_t size = t.c.size(), line = t.c.stride * size;
    const int64_t first = panel * block.b.cols, cols = block.panels[panel].cols;
    return {static_cast<const char*>(t.c.base) + (t.col0 + first) * line + (i - kMr) * size, line, cols,
            -cols * line};
  }
  const NextB& n = block.next_b;
  const int64_t part = number - n.first;
  if (part < 0 || part >= n.tiles || n.lines.from == nullptr)
    return {reinterpret_cast<const char*>(block.b.data), 0, 1, 0};  // in the cache in any case
  PrefetchLines lines = n.lines;
  lines.from += part / n.parts * n.jump + part % n.parts * n.part_jump;
  return lines;
}

/// The sums of the tile after that of a micro-panel at row i; nullptr where it does not start from C.
const float* next_sums(const GemmTask& t, const KBlock& block, int64_t i, int panel) {
  const bool row_ends = panel + 1 == block.count;
  const int64_t next = row_ends ? i + kMr : i;
  if (!block.from_c || block.sums_apart || t.c.transposed || next >= t.rows) return nullptr;
  return reinterpret_cast<const float*>(block.panels[row_ends ? 0 : panel + 1].in.row(next));
}

/// A of the tile at row i: packed, or in place.
const float* a_of_tile(const GemmTask& t, const KBlock& block, const MicroTile& io, int64_t i) {
  if (t.a_path == APath::packed) return packed_a(t, block.k, block.kc, i);
  const auto* words = static_cast<const float*>(t.a.base);
  const int64_t step = block.k - t.k0;
  return t.a_path == APath::rows ? words + i * io.lda + step : words + step * io.lda + i;
}

void run_tile(const GemmTask& t, KBlock& block, int64_t i, int64_t rows, int index) {
  MicroPanel& panel = block.panels[index];
  const int64_t number = i / kMr * block.count + index, j = index * block.b.cols;
  const bool on_diagonal =
      t.lower_only && rows == kMr && panel.cols == kNr;  // only the vectors that touch it
  const int64_t cols = on_diagonal ? min64(panel.cols, width_of(t.row0 + i + rows - t.col0 - j)) : panel.cols;
  MicroTile& io = panel.io;
  io.in = reinterpret_cast<const float*>(panel.in.row(i));
  io.out = panel.out.row(i);
  io.cols = static_cast<int>(cols);
  io.next = next_sums(t, block, i, index);
  io.fetch = prefetched_by(t, block, i, index, number);
  io.pack = packed_by(t, block.next_b, rows == kMr ? number : -1);
  const bool packs_b = i == 0 && !block.b_ready && tile_packs_b(t, cols);
  const bool packs_a = tile_packs_a(t, block.k, block.kc, i) && !packs_b && cols == panel.cols;
  if (packs_b) io.b_rows = reinterpret_cast<const float*>(t.b.at(t.col0 + j, block.k));
  if (packs_a)
    io.a_columns = t.a.at(i, t.pairs ? 2 * block.k : block.k);
  else if (packs_group(t, i))
    pack_group(t, block.k, block.kc, i);
  const int64_t vecs = width_of(cols) / kLanes;
  const MicroKernel run = packs_a             ? micro_kernel_packing_a(t.a.type, t.pairs, vecs)
                          : packs_b           ? micro_kernel_packing_b(t.a_path, vecs)
                          : io.pack.count > 0 ? micro_kernel_packing_next_b(t.pairs, t.b.type, t.a_path, vecs)
                          : rows == kMr && cols == panel.cols
                              ? panel.whole
                              : micro_kernel_of(t.pairs, t.a_path, rows, vecs, width_of(panel.cols) / kLanes);
  run(block.kc, a_of_tile(t, block, io, i), panel.b, io);
}

/// The tiles of kRowGroup rows.
void run_group(const GemmTask& t, KBlock& block, int64_t group) {
  const int64_t rows = min64(kRowGroup, t.rows - group);
  GemmTransposedC transposed{t.buffers.c_rows, round_up(t.cols, kNr), rows, t.cols, t.c};
  transposed.c.base = static_cast<char*>(t.c.base) + (t.col0 * t.c.stride + group) * t.c.size();
  transposed.c.bias = block.end && t.c.bias != nullptr
                          ? static_cast<const char*>(t.c.bias) + group * t.c.bias_size()
                          : nullptr;
  if (t.c.transposed && block.from_c && !block.sums_apart) gemm_load_c_transposed(transposed);
  for (int64_t i = group; i < group + rows; i += kMr)
    for (int j = 0; j < block.count && (!t.lower_only || t.col0 + j * block.b.cols < t.row0 + i + kMr); ++j)
      run_tile(t, block, i, min64(kMr, t.rows - i), j);
  if (t.c.transposed && (block.end || !block.sums_apart)) gemm_store_c_transposed(transposed);
}

}  // namespace

GemmTileShape gemm_tile_shape() {
  return {kMr, kNr, kLanes, kMaxKc};
}

int gemm_run_task(const GemmTask& t) {
  int64_t k = t.k0;
  int buffer = 0;
  bool ready = t.buffers.b_ready;
  do {  // at least once: a product with k = 0 writes zeros and the bias
    KBlock block = k_block_from(t, k, buffer, ready);
    for (int64_t i = 0; i < t.rows; i += kRowGroup) run_group(t, block, i);
    k += block.kc;
    ready = block.next_b.buffer != nullptr;
    if (ready) buffer = 1 - buffer;  // else the same buffer, whose lines are in the caches
  } while (k < t.k1);
  return ready ? buffer : -1;
}

}  // namespace ingot::INGOT_ISA
