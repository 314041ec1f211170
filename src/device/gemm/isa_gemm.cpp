// One thread's piece of a matrix product, for one instruction set. See gemm_kernels.h.
#include <numeric>

#include "device/gemm/gemm_chain.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_operands.h"
#include "device/gemm/gemm_tile.h"
#include "device/gemm/gemm_tiles.h"
#include "device/gemm/int8_kernels.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {
namespace {

/// Where the piece's strip of B for one range of steps lies: panel j at b + panel * j, rows of its own width.
struct Strip {
  const float* b;
  int64_t panel;         ///< words
  int64_t cols = kCols;  ///< of every panel but the last
};

/// Whether the first tile of a panel of B packs it: rows of f32 in whole vectors, and a whole tile.
bool tile_packs_b(const GemmPiece& p, int64_t cols) {
  return p.b_type == DType::f32 && !p.b_transposed && !p.b_packed && !p.pairs && !p.lower_only &&
         p.rows >= kRows && cols % kLanes == 0;
}

/// Steps k .. k+kc of a panel of packed pairs as f32, for an f32 A.
void widen_panel(const float* pairs, int64_t width, int64_t k, int64_t kc, float* out) {
  for (int64_t q = k; q < k + kc; ++q, out += width) {
    const float* row = pairs + q / 2 * width;
    for (int64_t j = 0; j < width; j += kLanes) {
      const Vec x = load(row + j);
      store(out + j, q % 2 == 0 ? TwoFmas::low(x) : TwoFmas::high(x));
    }
  }
}

/// Steps k .. k+kc of packed int8 as f32.
Strip widen_int8(const GemmPiece& p, int64_t k, int64_t kc, float* place) {
  const int64_t panel = int8_panel_bytes(kCols, p.depth);
  const std::byte* packed = static_cast<const std::byte*>(p.b) + p.col0 / kCols * panel;
  for (int64_t j = 0; j < p.cols; j += kCols)
    int8_widen({packed + j / kCols * panel, width_of(min64(kCols, p.cols - j)), p.depth}, k, kc,
               place + j * kc);
  return {place, kCols * kc};
}

/// Columns of every panel but the last of a strip that is packed from `cols` columns of B: panels are about equally wide.
int64_t even_panel(int64_t cols) {
  const int64_t panels = (cols + kCols - 1) / kCols;
  return width_of((cols + panels - 1) / panels);
}

/// The strip of steps k .. k+kc, in `place` unless B has been packed for good; `ready`: it is there.
Strip make_strip(const GemmPiece& p, int64_t k, int64_t kc, float* place, bool ready) {
  if (p.b_packed && p.b_type == DType::u8) return widen_int8(p, k, kc, place);
  const bool packed_pairs = p.b_packed && p.b_type == DType::bf16;
  const int64_t packed_panel = kCols * (packed_pairs ? (p.depth + 1) / 2 : p.depth);
  const float* packed = static_cast<const float*>(p.b) + p.col0 / kCols * packed_panel;
  if (p.b_packed && packed_pairs == p.pairs)  // read in place; the last panel may be narrower
    return {packed + k * width_of(min64(kCols, p.cols)), packed_panel};
  const int64_t even = p.b_packed ? kCols : even_panel(p.cols);
  for (int64_t j = 0; j < p.cols && !ready; j += even) {
    const int64_t cols = min64(even, p.cols - j);
    float* out = place + j * kc;
    if (p.b_packed)
      widen_panel(packed + j / kCols * packed_panel, width_of(cols), k, kc, out);
    else if (!tile_packs_b(p, cols))
      gemm_pack_b({p.b, p.b_type, p.b_transposed, p.pairs, p.ldb, p.depth, k, kc, p.col0 + j, cols, out});
  }
  return {place, even * kc, even};
}

constexpr int64_t kSlow = 4;  // steps for a line of B: one a step would be more than memory gives

/// What the last `tiles` tiles of a pass do for the strip that follows, a part each: they pack a part of a vector of its columns, or bring
/// to the level 2 cache some columns of transposed B, else some rows of a line's width. The first tiles would do it too early: A passes
/// through that cache meanwhile.
struct Ahead {
  GemmStrip strip;
  float* place = nullptr;        ///< where the strip is packed; nullptr: they fetch
  int64_t slow = 1;              ///< steps for a line: kSlow where there are tiles enough
  int64_t first = 0, tiles = 0;  ///< the number of the first of them
  Lines lines{nullptr, 0, 1, 0};
  int64_t parts = 1;  ///< of a line's width of rows
  int64_t part_jump = 0,
          jump = 0;  ///< bytes from part to part, and from one width, or some columns, to the next
};

/// The strip of the piece's own steps from k on.
GemmStrip strip_from(const GemmPiece& p, int64_t k) {
  const int64_t size = p.b_type == DType::bf16 ? 2 : 4, elements = p.pairs ? 2 : 1,
                kc = min64(p.kc, p.k1 - k);
  return {static_cast<const char*>(p.b) +
              (p.b_transposed ? p.col0 * p.ldb + k * elements : k * elements * p.ldb + p.col0) * size,
          kc, p.cols, !p.pairs || 2 * (k + kc) <= p.depth};
}

/// Whether whole tiles of `kc` steps can pack it. Pairs have no tile that packs its own strip by the way; in f32 it repays only where A
/// is read without a detour.
bool tiles_pack_ahead(const GemmPiece& p, const GemmStrip& next, int64_t kc) {
  const bool rows = !p.b_transposed && !p.lower_only && p.a_source == nullptr;
  const bool repays = p.pairs || (p.b_type == DType::f32 && p.a_layout == ALayout::packed);
  return rows && repays && next.whole && next.kc <= kc && next.kc % kSlow == 0 && next.cols % kLanes == 0;
}

void fetch_ahead(const GemmPiece& p, int64_t whole_tiles, Ahead& a) {
  const int64_t size = p.b_type == DType::bf16 ? 2 : 4, elements = p.pairs ? 2 : 1, row = p.ldb * size,
                kc = a.strip.kc;
  const int64_t lines_of_column = (kc * elements * size + 63) / 64,
                columns = kc / lines_of_column > 1 ? kc / lines_of_column : 1;
  const int64_t least =
      p.b_transposed ? (a.strip.cols + columns - 1) / columns : (a.strip.cols * size + 63) / 64;
  a.slow = whole_tiles < 2 * kSlow * least ? 1 : kSlow, a.tiles = least * a.slow;
  a.first = whole_tiles > a.tiles ? whole_tiles - a.tiles : 0;
  const auto* from = static_cast<const char*>(a.strip.b);
  if (p.b_transposed) {
    a.lines = {from, 64 / a.slow, lines_of_column * a.slow, row - lines_of_column * 64};
    a.jump = (columns + a.slow - 1) / a.slow * row;
  } else {
    a.lines = {from, 0, a.slow, elements * row};
    a.parts = a.slow, a.part_jump = kc / a.slow * elements * row, a.jump = 64;
  }
}

Ahead ahead_of(const GemmPiece& p, const GemmStrip& next, int64_t kc, float* place, bool ready) {
  Ahead a;
  if (p.b_packed || next.b == nullptr || next.kc == 0) return a;
  a.strip = next;
  const int64_t panels = (p.cols + kCols - 1) / kCols, whole = p.rows / kRows * panels;
  const int64_t free = whole - (ready || p.pairs ? 0 : panels), vectors = next.cols / kLanes;
  if (!tiles_pack_ahead(p, next, kc) || free < vectors) {
    fetch_ahead(p, whole, a);
    return a;
  }
  a.place = place;
  a.slow = free >= 2 * kSlow * vectors ? kSlow : 1;
  a.tiles = vectors * a.slow, a.first = whole - a.tiles;
  return a;
}

/// Rows of chains, or of a group of them that is used again and again.
struct ChainRows {
  char* first = nullptr;  ///< nullptr: they begin with zeros
  int64_t stride = 0;     ///< bytes
  int64_t mask = ~int64_t{0};

  char* row(int64_t i) const { return first == nullptr ? nullptr : first + (i & mask) * stride; }
};

/// The tiles of a pass that share a panel of B.
struct Panel {
  int64_t cols;
  const float* b;
  ChainRows in, out;
  TileFn whole;  ///< of kRows rows, where it does nothing by the way
  TileIo io;     ///< of the tile at work: what all share is set once
};

/// One pass over the tiles of a piece: steps k .. k+kc.
struct Pass {
  int64_t k, kc;
  bool from_c, end;  ///< whether chains go on from C or where they wait; whether they end
  bool parks;        ///< whether they wait in the piece's strip, in f32
  Strip strip;
  bool ready;  ///< the strip was there before the pass
  Ahead ahead;
  int count = 0;
  Panel panels[kMaxPanels];
};

/// How many columns of A in place are fetched ahead, of which every one is another line: so many that those at hand still find room in the
/// sets of the level 1 cache that the stride meets, beside B's; where a step takes less time, half.
int64_t columns_ahead(int64_t stride, int64_t vecs) {
  constexpr int64_t kWay = 4096, kMost = 48;  // bytes; columns
  const int64_t sets = min64(kWay / std::gcd(stride, kWay), kWay / 64);
  return min64(kMost, sets * (vecs == kVecs ? 8 : 4));
}

/// What the tiles of the panel at column j share.
Panel panel_at(const GemmPiece& p, const Pass& pass, int64_t j) {
  const bool waits = pass.parks && !pass.end;
  const int64_t size = p.c_type == DType::bf16 ? 2 : 4, width = round_up(p.cols, kCols);
  ChainRows c{static_cast<char*>(p.c) + (p.col0 + j) * size, p.ldc * size}, parked;
  if (p.c_transposed) c = {reinterpret_cast<char*>(p.c_group + j), width * 4, kGroup - 1};
  if (pass.parks) parked = {reinterpret_cast<char*>(p.c_strip + j), width * 4};
  Panel panel{};
  panel.cols = min64(pass.strip.cols, p.cols - j);
  panel.b = pass.strip.b + j / pass.strip.cols * pass.strip.panel;
  panel.in = !pass.from_c ? ChainRows{} : pass.parks ? parked : c;
  panel.out = waits ? parked : c;
  const int64_t vecs = width_of(panel.cols) / kLanes;
  panel.whole = tile_of(p.pairs, p.a_layout, kRows, vecs, vecs);
  TileIo& io = panel.io;
  io.in_stride = panel.in.stride / 4;
  io.out_bf16 = p.c_type == DType::bf16 && !p.c_transposed && !waits;
  io.out_stride = panel.out.stride / (io.out_bf16 ? 2 : 4);
  io.bias_bf16 = p.bias_type == DType::bf16;
  io.bias = pass.end && p.bias != nullptr && !p.c_transposed
                ? static_cast<const char*>(p.bias) + (p.col0 + j) * (io.bias_bf16 ? 2 : 4)
                : nullptr;
  io.next_stride = p.ldc;
  io.ldb = p.ldb, io.lda = p.lda;
  io.a_ahead = p.a_layout == ALayout::columns ? columns_ahead(p.lda * 4, vecs) * p.lda : 0;
  io.a_panel = kRows * pass.kc;
  return panel;
}

/// The pass from step k on. `turn`: its strip's place; `ready`: the strip is there.
Pass pass_from(const GemmPiece& p, int64_t k, int turn, bool ready) {
  const int64_t kc = min64(p.kc, p.k1 - k), end = k + kc;
  const bool parks = p.c_type == DType::bf16 && p.k1 - p.k0 > p.kc;
  Pass pass{k,
            kc,
            p.from_c || k > p.k0,
            p.last && end == p.k1,
            parks,
            make_strip(p, k, kc, p.b_strips[turn], ready),
            ready,
            ahead_of(p, end < p.k1 ? strip_from(p, end) : p.next, kc, p.b_strips[1 - turn], ready),
            0,
            {}};
  for (int64_t j = 0; j < p.cols; j += pass.strip.cols) pass.panels[pass.count++] = panel_at(p, pass, j);
  return pass;
}

/// What tile `number` of the pass packs of the strip that follows.
VectorsOfB packed_ahead(const GemmPiece& p, const Ahead& a, int64_t number) {
  const int64_t part = number - a.first;
  if (a.place == nullptr || part < 0 || part >= a.tiles) return {nullptr, 0, nullptr, 0, 0, 1};
  const int64_t size = p.b_type == DType::bf16 ? 2 : 4, elements = p.pairs ? 2 : 1;
  const int64_t col = part / a.slow * kLanes, count = a.strip.kc / a.slow, k = part % a.slow * count;
  const int64_t even = even_panel(a.strip.cols), panel = col / even * even,
                width = width_of(min64(even, a.strip.cols - panel));
  return {static_cast<const char*>(a.strip.b) + (k * elements * p.ldb + col) * size,
          p.ldb,
          a.place + panel * a.strip.kc + k * width + col - panel,
          width,
          count,
          a.slow};
}

/// Packed A from row i on.
float* packed_a(const GemmPiece& p, const Pass& pass, int64_t i) {
  return p.a_packed + (pass.k - p.k0) * p.rows_padded + (p.row_in_block + i) * pass.kc;
}

/// Element (row i of the piece, `element` of k) of A where it lies.
const void* source_of(const GemmPiece& p, int64_t i, int64_t element) {
  const int64_t index = p.a_transposed ? element * p.lda + i : i * p.lda + element;
  return static_cast<const char*>(p.a_source) + index * (p.a_type == DType::bf16 ? 2 : 4);
}

/// A piece that packs A does so for a group at a time,
bool starts_pack_of_a(const GemmPiece& p, int64_t i) {
  return p.a_source != nullptr && i % kGroup == 0;
}
/// the first tile of which does it by the way if the group is whole and a vector of a column, and no step lacks half of its pair.
bool tile_packs_a(const GemmPiece& p, const Pass& pass, int64_t i) {
  return kLanes == kGroup && starts_pack_of_a(p, i) && p.a_transposed && i + kGroup <= p.rows &&
         !(p.pairs && pass.k + pass.kc > p.depth / 2);
}

void pack_a(const GemmPiece& p, const Pass& pass, int64_t i) {
  gemm_pack_a({source_of(p, i, 0), p.a_type, p.a_transposed, p.pairs, p.lda, p.depth,
               min64(kGroup, p.rows - i), pass.k, pass.kc, packed_a(p, pass, i)});
}

/// What tile `number` of the pass, at row i, fetches: the columns of A that will be packed next, the rows of C that its group will write, or
/// a part of B.
Lines fetched_by(const GemmPiece& p, const Pass& pass, int64_t i, int64_t panel, int64_t number) {
  if (p.a_source != nullptr && p.a_transposed && !starts_pack_of_a(p, i)) {
    const int64_t elements = p.pairs ? 2 : 1, size = p.a_type == DType::bf16 ? 2 : 4;
    return {static_cast<const char*>(source_of(p, i + kRows, elements * pass.k)), elements * p.lda * size,
            pass.kc + 1, 0};
  }
  if (p.c_transposed && i % kGroup != 0 && (pass.end || !pass.parks)) {
    const int64_t size = p.c_type == DType::bf16 ? 2 : 4, row = p.ldc * size;
    const int64_t first = panel * pass.strip.cols, rows = pass.panels[panel].cols;
    return {static_cast<const char*>(p.c) + (p.col0 + first) * row + (i - kRows) * size, row, rows,
            -rows * row};
  }
  const Ahead& a = pass.ahead;
  const int64_t part = number - a.first;
  if (part < 0 || part >= a.tiles || a.lines.from == nullptr)
    return {reinterpret_cast<const char*>(pass.strip.b), 0, 1, 0};  // there in any case
  Lines lines = a.lines;
  lines.from += part / a.parts * a.jump + part % a.parts * a.part_jump;
  return lines;
}

/// Where the tile after that of a panel at row i starts from C; nullptr: it does not.
const float* next_chains(const GemmPiece& p, const Pass& pass, int64_t i, int panel) {
  const bool row_ends = panel + 1 == pass.count;
  const int64_t next = row_ends ? i + kRows : i;
  if (!pass.from_c || pass.parks || p.c_transposed || next >= p.rows) return nullptr;
  return reinterpret_cast<const float*>(pass.panels[row_ends ? 0 : panel + 1].in.row(next));
}

void run_tile(const GemmPiece& p, Pass& pass, int64_t i, int64_t rows, int index) {
  Panel& panel = pass.panels[index];
  const int64_t number = i / kRows * pass.count + index, j = index * pass.strip.cols;
  const bool on_edge = p.lower_only && rows == kRows &&
                       panel.cols == kCols;  // of the triangle: only the vectors that touch it
  const int64_t cols = on_edge ? min64(panel.cols, width_of(p.row0 + i + rows - p.col0 - j)) : panel.cols;
  TileIo& io = panel.io;
  io.in = reinterpret_cast<const float*>(panel.in.row(i));
  io.out = panel.out.row(i);
  io.cols = static_cast<int>(cols);
  io.next = next_chains(p, pass, i, index);
  io.fetch = fetched_by(p, pass, i, index, number);
  io.pack = packed_ahead(p, pass.ahead, rows == kRows ? number : -1);
  const bool packs_b = i == 0 && !pass.ready && tile_packs_b(p, cols);
  const bool packs_a = tile_packs_a(p, pass, i) && !packs_b && cols == panel.cols;
  if (packs_b) io.b_rows = static_cast<const float*>(p.b) + pass.k * p.ldb + p.col0 + j;
  if (packs_a)
    io.a_columns = source_of(p, i, p.pairs ? 2 * pass.k : pass.k);
  else if (starts_pack_of_a(p, i))
    pack_a(p, pass, i);
  const int64_t vecs = width_of(cols) / kLanes;
  const TileFn run = packs_a             ? a_packing_tile(p.a_type, p.pairs, vecs)
                     : packs_b           ? b_packing_tile(p.a_layout, vecs)
                     : io.pack.count > 0 ? b_ahead_tile(p.pairs, p.b_type, p.a_layout, vecs)
                     : rows == kRows && cols == panel.cols
                         ? panel.whole
                         : tile_of(p.pairs, p.a_layout, rows, vecs, width_of(panel.cols) / kLanes);
  const int64_t step = pass.k - p.k0;
  const float* a = p.a_layout == ALayout::packed ? packed_a(p, pass, i)
                   : p.a_layout == ALayout::rows ? p.a + i * p.lda + step
                                                 : p.a + step * p.lda + i;
  run(pass.kc, a, panel.b, io);
}

/// The tiles of kGroup rows.
void run_group(const GemmPiece& p, Pass& pass, int64_t group) {
  const int64_t rows = min64(kGroup, p.rows - group), size = p.c_type == DType::bf16 ? 2 : 4;
  const bool adds = pass.end && p.bias != nullptr;
  const GemmTurned turned{
      p.c_group,
      round_up(p.cols, kCols),
      rows,
      p.cols,
      static_cast<char*>(p.c) + (p.col0 * p.ldc + group) * size,
      p.c_type,
      p.ldc,
      adds ? static_cast<const char*>(p.bias) + group * (p.bias_type == DType::bf16 ? 2 : 4) : nullptr,
      p.bias_type};
  if (p.c_transposed && pass.from_c && !pass.parks) gemm_take_turned(turned);
  for (int64_t i = group; i < group + rows; i += kRows)
    for (int j = 0; j < pass.count && (!p.lower_only || p.col0 + j * pass.strip.cols < p.row0 + i + kRows);
         ++j)
      run_tile(p, pass, i, min64(kRows, p.rows - i), j);
  if (p.c_transposed && (pass.end || !pass.parks)) gemm_put_turned(turned);
}

}  // namespace

GemmTile gemm_tile() {
  return {kRows, kCols, kLanes};
}

int gemm_piece(const GemmPiece& p) {
  int64_t k = p.k0;
  int turn = 0;
  bool ready = p.b_ready;
  do {  // at least once: k = 0 still writes its zeros and bias
    Pass pass = pass_from(p, k, turn, ready);
    for (int64_t i = 0; i < p.rows; i += kGroup) run_group(p, pass, i);
    k += pass.kc;
    ready = pass.ahead.place != nullptr;
    if (ready) turn = 1 - turn;  // else the same place, whose lines are in the caches
  } while (k < p.k1);
  return ready ? turn : -1;
}

}  // namespace ingot::INGOT_ISA
