// The register tile of matrix products and one thread's piece of work, for one instruction set. See
// gemm_kernels.h.
#include "device/cpu/gemm_chain.h"
#include "device/cpu/gemm_kernels.h"
#include "device/cpu/gemm_operands.h"
#include "device/cpu/gemm_tile.h"
#include "device/cpu/int8_kernels.h"
#include "device/cpu/simd.h"

namespace ingot::INGOT_ISA {
namespace {

// ---- the register tile
// -----------------------------------------------------------------------------------------

template <int MR, int NV>
INGOT_INLINE void pin(Vec (&acc)[MR][NV]) {
#if !defined(INGOT_ISA_generic)
  // Arithmetic on acc stays on its side of a change of the rounding mode.
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) asm volatile("" : "+v"(acc[i][v].v));
#endif
}

template <int MR, int NV, class Chain, class A, class B>
INGOT_INLINE void run_step(A& a, B& b, Vec (&acc)[MR][NV]) {
  a.begin();
  Vec bv[NV];
#pragma GCC unroll 3
  for (int v = 0; v < NV; ++v) bv[v] = b.vector(v);
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    float word;
    std::memcpy(&word, a.word(i), sizeof(word));
    const Vec x = set1(word);
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) acc[i][v] = Chain::step(x, bv[v], acc[i][v]);
  }
  a.next();
  b.next();
}

/// The lines that a tile fetches, one after the other.
struct Fetch {
  const char* line;
  int64_t step, run, jump, left;
  explicit Fetch(const Lines& lines) : line(lines.from), step(lines.step), run(lines.run), jump(lines.jump), left(run) {}
  INGOT_INLINE void next() {
    __builtin_prefetch(line, 0, 2);
    line += step;
    if (--left == 0) line += jump, left = run;
  }
};

template <int MR, int NV, class Chain, class A, class B>
INGOT_INLINE void run_chains(int64_t kc, A a, B b, const TileIo& io, Vec (&acc)[MR][NV]) {
  Fetch fetch(io.fetch);
  int64_t k = 0;
  if constexpr (std::is_same_v<A, RowsOfA> && MR == kRows) {
    // The next rows' lines: 16 steps use one line of each.
    constexpr int kPerRow = 16 / kRows;
    for (; k + 16 <= kc; k += 16) {
      const float* next = a.at + kRows * a.lda;
      for (int i = 0; i < kRows; ++i, next += a.lda) {
        __builtin_prefetch(next);
#pragma GCC unroll 4
        for (int j = 0; j < kPerRow; ++j) {
          fetch.next();
          run_step<MR, NV, Chain>(a, b, acc);
        }
      }
    }
  }
  for (; k < kc; ++k) {
    fetch.next();
    run_step<MR, NV, Chain>(a, b, acc);
  }
}

/// NV vectors of a panel.
template <int MR, int NV, class Chain, class A, class B = StripOfB<NV>>
void tile(int64_t kc, const float* a, const float* b, const TileIo& io) {
  Vec acc[MR][NV];
  if (io.next != nullptr)  // it travels while the chains run
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) __builtin_prefetch(io.next + i * io.next_stride + v * kLanes, 1);
  if (io.in == nullptr) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) acc[i][v] = zero();
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) acc[i][v] = load_cols<NV>(io.in + i * io.in_stride, v, io.cols);
  }
  if constexpr (std::is_same_v<Chain, TwoFmas>) {
    const unsigned mode = flush_subnormals();
    pin(acc);
    run_chains<MR, NV, Chain>(kc, A(a, io), B(b, io), io, acc);
    pin(acc);
    restore_mode(mode);
  } else {
    run_chains<MR, NV, Chain>(kc, A(a, io), B(b, io), io, acc);
  }
  if (io.bias != nullptr) {
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) {
      const Vec add = io.bias_bf16 ? load_cols<NV>(static_cast<const bf16*>(io.bias), v, io.cols)
                                   : load_cols<NV>(static_cast<const float*>(io.bias), v, io.cols);
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) acc[i][v] = acc[i][v] + add;
    }
  }
  if (io.out_bf16) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v)
        store_cols<NV>(static_cast<bf16*>(io.out) + i * io.out_stride, v, io.cols, acc[i][v]);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v)
        store_cols<NV>(static_cast<float*>(io.out) + i * io.out_stride, v, io.cols, acc[i][v]);
  }
}

using TileFn = void (*)(int64_t, const float*, const float*, const TileIo&);

template <class Chain, class A, int MR>
TileFn tile_of_width(int64_t vecs, int64_t panel) {
  if constexpr (MR == kRows)
    if (vecs < panel) return vecs == 2 ? &tile<MR, 2, Chain, A, StripOfB<kVecs>> : &tile<MR, 1, Chain, A, StripOfB<kVecs>>;
  return vecs == 3 ? &tile<MR, 3, Chain, A> : vecs == 2 ? &tile<MR, 2, Chain, A> : &tile<MR, 1, Chain, A>;
}

template <class Chain, class A>
TileFn tile_of_rows(int64_t rows, int64_t vecs, int64_t panel) {
  switch (rows) {
    case 1:
      return tile_of_width<Chain, A, 1>(vecs, panel);
    case 2:
      return tile_of_width<Chain, A, 2>(vecs, panel);
    case 3:
      return tile_of_width<Chain, A, 3>(vecs, panel);
#if defined(INGOT_ISA_avx512)
    case 4:
      return tile_of_width<Chain, A, 4>(vecs, panel);
    case 5:
      return tile_of_width<Chain, A, 5>(vecs, panel);
    case 6:
      return tile_of_width<Chain, A, 6>(vecs, panel);
    case 7:
      return tile_of_width<Chain, A, 7>(vecs, panel);
#endif
    default:
      return tile_of_width<Chain, A, kRows>(vecs, panel);
  }
}

template <class Chain>
TileFn tile_of_chain(ALayout a, int64_t rows, int64_t vecs, int64_t panel) {
  if constexpr (std::is_same_v<Chain, Plain>)  // pairs of columns are not words
    if (a == ALayout::columns) return tile_of_rows<Chain, ColumnsOfA>(rows, vecs, panel);
  return a == ALayout::rows ? tile_of_rows<Chain, RowsOfA>(rows, vecs, panel) : tile_of_rows<Chain, PackedA>(rows, vecs, panel);
}

TileFn tile_of(bool pairs, ALayout a, int64_t rows, int64_t vecs, int64_t panel) {
  if (!pairs) return tile_of_chain<Plain>(a, rows, vecs, panel);
#if defined(INGOT_ISA_avx512)
  if (active_isa() == Isa::avx512bf16) return tile_of_chain<Dot>(a, rows, vecs, panel);
#endif
  return tile_of_chain<TwoFmas>(a, rows, vecs, panel);
}

/// That of the first rows, which packs B.
template <class A>
TileFn b_packing_tile(int64_t vecs) {
  return vecs == 3   ? &tile<kRows, 3, Plain, A, RowsOfB<3>>
         : vecs == 2 ? &tile<kRows, 2, Plain, A, RowsOfB<2>>
                     : &tile<kRows, 1, Plain, A, RowsOfB<1>>;
}

TileFn b_packing_tile(ALayout a, int64_t vecs) {
  return a == ALayout::columns ? b_packing_tile<ColumnsOfA>(vecs)
         : a == ALayout::rows  ? b_packing_tile<RowsOfA>(vecs)
                               : b_packing_tile<PackedA>(vecs);
}

/// Those that pack columns of A.
TileFn a_packing_tile([[maybe_unused]] DType type, [[maybe_unused]] bool pairs, [[maybe_unused]] int64_t vecs) {
#if defined(INGOT_ISA_avx512)
  if (pairs && active_isa() == Isa::avx512bf16) return tile_of_width<Dot, PackedPairs, kRows>(vecs, vecs);
#endif
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
  if (pairs) return tile_of_width<TwoFmas, PackedPairs, kRows>(vecs, vecs);
  return type == DType::bf16 ? tile_of_width<Plain, PackedColumns<bf16>, kRows>(vecs, vecs)
                             : tile_of_width<Plain, PackedColumns<float>, kRows>(vecs, vecs);
#else
  return nullptr;
#endif
}

// ---- one thread's piece
// ----------------------------------------------------------------------------------------

/// Where the piece's strip of B for one range of steps lies: panel j at b + panel * j, rows of its own width.
struct Strip {
  const float* b;
  int64_t panel;  ///< words
  int64_t cols = kCols;  ///< of every panel but the last
};

/// Whether the first tile of a panel of B packs it: rows of f32 in whole vectors, and a whole tile.
bool tile_packs_b(const GemmPiece& p, int64_t cols) {
  return p.b_type == DType::f32 && !p.b_transposed && !p.b_packed && !p.pairs && !p.lower_only && p.rows >= kRows && cols % kLanes == 0;
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
Strip widen_int8(const GemmPiece& p, int64_t k, int64_t kc) {
  const int64_t panel = int8_panel_bytes(kCols, p.depth);
  const std::byte* packed = static_cast<const std::byte*>(p.b) + p.col0 / kCols * panel;
  for (int64_t j = 0; j < p.cols; j += kCols)
    int8_widen({packed + j / kCols * panel, width_of(min64(kCols, p.cols - j)), p.depth}, k, kc, p.b_strip + j * kc);
  return {p.b_strip, kCols * kc};
}

Strip make_strip(const GemmPiece& p, int64_t k, int64_t kc) {
  if (p.b_packed && p.b_type == DType::u8) return widen_int8(p, k, kc);
  const bool packed_pairs = p.b_packed && p.b_type == DType::bf16;
  const int64_t packed_panel = kCols * (packed_pairs ? (p.depth + 1) / 2 : p.depth);
  const float* packed = static_cast<const float*>(p.b) + p.col0 / kCols * packed_panel;
  if (p.b_packed && packed_pairs == p.pairs)  // read in place; the last panel may be narrower
    return {packed + k * width_of(min64(kCols, p.cols)), packed_panel};
  const int64_t panels = (p.cols + kCols - 1) / kCols;
  const int64_t even = p.b_packed ? kCols : width_of((p.cols + panels - 1) / panels);
  for (int64_t j = 0; j < p.cols; j += even) {
    const int64_t cols = min64(even, p.cols - j);
    float* out = p.b_strip + j * kc;
    if (p.b_packed)
      widen_panel(packed + j / kCols * packed_panel, width_of(cols), k, kc, out);
    else if (!tile_packs_b(p, cols))
      gemm_pack_b({p.b, p.b_type, p.b_transposed, p.pairs, p.ldb, p.depth, k, kc, p.col0 + j, cols, out});
  }
  return {p.b_strip, even * kc, even};
}

/// What will be packed after the strip that is being multiplied. Each of the last `tiles` tiles brings a part of it to the level 2 cache:
/// of transposed B some columns, else some rows of a line's width. The first ones would bring it too early (A passes through that cache
/// meanwhile), and a line a step would be more than memory gives: where there are tiles enough, a line takes `kSlow` steps.
struct Ahead {
  static constexpr int64_t kSlow = 4;
  Lines lines;
  int64_t first, tiles;           ///< the number of the first of them
  int64_t parts, part_jump, jump;  ///< bytes from part to part of a line's width, and from one width to the next
};

Ahead ahead_of(const GemmPiece& p, int64_t next_k, int64_t kc) {
  const int64_t size = p.b_type == DType::bf16 ? 2 : 4, elements = p.pairs ? 2 : 1, row = p.ldb * size;
  const int64_t k = next_k * elements;
  const void* b = p.next_b;
  if (next_k < p.k1) b = static_cast<const char*>(p.b) + (p.b_transposed ? p.col0 * p.ldb + k : k * p.ldb + p.col0) * size;
  if (p.b_packed || b == nullptr || kc == 0) return {{nullptr, 0, 1, 0}, 0, 0, 1, 0, 0};
  const auto* from = static_cast<const char*>(b);
  const int64_t all = (p.rows + kRows - 1) / kRows * ((p.cols + kCols - 1) / kCols);
  const int64_t lines_of_column = (kc * elements * size + 63) / 64, columns = kc / lines_of_column > 1 ? kc / lines_of_column : 1;
  const int64_t least = p.b_transposed ? (p.cols + columns - 1) / columns : (p.cols * size + 63) / 64;
  const int64_t slow = all < 2 * Ahead::kSlow * least ? 1 : Ahead::kSlow, tiles = least * slow, first = all > tiles ? all - tiles : 0;
  if (p.b_transposed) return {{from, 64 / slow, lines_of_column * slow, row - lines_of_column * 64}, first, tiles, 1, 0, (columns + slow - 1) / slow * row};
  return {{from, 0, slow, elements * row}, first, tiles, slow, kc / slow * elements * row, 64};
}

/// One pass over the tiles of a piece: steps k .. k+kc.
struct Pass {
  int64_t k, kc;
  bool from_c, end;  ///< whether chains go on from C or where they wait; whether they end
  bool parks;        ///< whether they wait in the piece's strip, in f32
  Strip strip;
  Ahead ahead;
};

Pass pass_from(const GemmPiece& p, int64_t k) {
  const int64_t kc = min64(p.kc, p.k1 - k);
  const bool parks = p.c_type == DType::bf16 && p.k1 - p.k0 > p.kc;
  return {k, kc, p.from_c || k > p.k0, p.last && k + kc == p.k1, parks, make_strip(p, k, kc), ahead_of(p, k + kc, kc)};
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
  gemm_pack_a({source_of(p, i, 0), p.a_type, p.a_transposed, p.pairs, p.lda, p.depth, min64(kGroup, p.rows - i), pass.k, pass.kc,
               packed_a(p, pass, i)});
}

/// What the tile at row i and panel j fetches: the columns of A that will be packed next, or a part of B.
Lines fetched_by(const GemmPiece& p, const Pass& pass, int64_t i, int64_t panel) {
  if (p.a_source != nullptr && p.a_transposed && !starts_pack_of_a(p, i)) {
    const int64_t elements = p.pairs ? 2 : 1, size = p.a_type == DType::bf16 ? 2 : 4;
    return {static_cast<const char*>(source_of(p, i + kRows, elements * pass.k)), elements * p.lda * size, pass.kc + 1, 0};
  }
  if (p.c_transposed && i % kGroup != 0) {
    const int64_t size = p.c_type == DType::bf16 ? 2 : 4, step = p.ldc * size, first = panel * pass.strip.cols, count = min64(pass.strip.cols, p.cols - first);
    return {static_cast<const char*>(p.c) + (p.col0 + first) * step + (i - kRows) * size, step, count, -count * step};
  }
  const Ahead& a = pass.ahead;
  const int64_t part = i / kRows * ((p.cols + kCols - 1) / kCols) + panel - a.first;
  Lines lines = a.lines;
  if (part >= 0 && part < a.tiles && lines.from != nullptr)
    lines.from += part / a.parts * a.jump + part % a.parts * a.part_jump;
  else
    lines = {reinterpret_cast<const char*>(pass.strip.b), 0, 1, 0};  // there in any case
  return lines;
}

/// The chains of the tile at (i, j): in C, in the strip where they wait, or in the group's rows of C transposed.
TileIo chains_of(const GemmPiece& p, const Pass& pass, int64_t i, int64_t j, int64_t cols) {
  const int64_t strip_width = round_up(p.cols, kCols);
  const bool waits = pass.parks && !pass.end;
  float* parked = p.c_strip + i * strip_width + j;
  const int64_t offset = i * p.ldc + p.col0 + j;
  float* c_f32 = p.c_transposed ? p.c_group + i % kGroup * strip_width + j : static_cast<float*>(p.c) + offset;
  const int64_t c_stride = p.c_transposed ? strip_width : p.ldc;
  TileIo io;
  io.in = !pass.from_c ? nullptr : pass.parks ? parked : c_f32;
  io.in_stride = pass.parks ? strip_width : c_stride;
  io.out_bf16 = p.c_type == DType::bf16 && !p.c_transposed && !waits;
  io.out = io.out_bf16 ? static_cast<void*>(static_cast<bf16*>(p.c) + offset) : waits ? static_cast<void*>(parked) : static_cast<void*>(c_f32);
  io.out_stride = waits ? strip_width : c_stride;
  io.bias_bf16 = p.bias_type == DType::bf16;
  io.bias = pass.end && p.bias != nullptr && !p.c_transposed
                ? static_cast<const char*>(p.bias) + (p.col0 + j) * (io.bias_bf16 ? 2 : 4)
                : nullptr;
  io.cols = static_cast<int>(cols);
  const bool row_ends = j + pass.strip.cols >= p.cols;
  const int64_t next_i = row_ends ? i + kRows : i, next_j = row_ends ? 0 : j + pass.strip.cols;
  const bool reads_next = pass.from_c && !pass.parks && !p.c_transposed && next_i < p.rows;
  io.next = reads_next ? static_cast<float*>(p.c) + next_i * p.ldc + p.col0 + next_j : nullptr;
  io.next_stride = p.ldc;
  return io;
}

void run_panel(const GemmPiece& p, const Pass& pass, int64_t i, int64_t rows, int64_t j) {
  const Strip& strip = pass.strip;
  const int64_t panel = min64(strip.cols, p.cols - j);
  const bool on_edge = p.lower_only && rows == kRows && panel == kCols;  // of the triangle: only the vectors that touch it
  const int64_t cols = on_edge ? min64(panel, width_of(p.row0 + i + rows - p.col0 - j)) : panel;
  TileIo io = chains_of(p, pass, i, j, cols);
  io.fetch = fetched_by(p, pass, i, j / strip.cols);
  const bool packs_b = i == 0 && tile_packs_b(p, cols);
  const bool packs_a = tile_packs_a(p, pass, i) && !packs_b && cols == panel;
  if (packs_b) io.b_rows = static_cast<const float*>(p.b) + pass.k * p.ldb + p.col0 + j;
  if (packs_a)
    io.a_columns = source_of(p, i, p.pairs ? 2 * pass.k : pass.k);
  else if (starts_pack_of_a(p, i))
    pack_a(p, pass, i);
  io.ldb = p.ldb;
  io.lda = p.lda;
  io.a_panel = kRows * pass.kc;
  const int64_t vecs = width_of(cols) / kLanes;
  const TileFn run = packs_a   ? a_packing_tile(p.a_type, p.pairs, vecs)
                     : packs_b ? b_packing_tile(p.a_layout, vecs)
                               : tile_of(p.pairs, p.a_layout, rows, vecs, width_of(panel) / kLanes);
  const int64_t step = pass.k - p.k0;
  const float* a = p.a_layout == ALayout::packed ? packed_a(p, pass, i) : p.a_layout == ALayout::rows ? p.a + i * p.lda + step : p.a + step * p.lda + i;
  run(pass.kc, a, strip.b + j / strip.cols * strip.panel, io);
}

/// The tiles of kGroup rows.
void run_group(const GemmPiece& p, const Pass& pass, int64_t group) {
  const int64_t rows = min64(kGroup, p.rows - group), size = p.c_type == DType::bf16 ? 2 : 4;
  const bool adds = pass.end && p.bias != nullptr;
  const GemmTurned turned{p.c_group, round_up(p.cols, kCols), rows, p.cols, static_cast<char*>(p.c) + (p.col0 * p.ldc + group) * size,
                          p.c_type,  p.ldc, adds ? static_cast<const char*>(p.bias) + group * (p.bias_type == DType::bf16 ? 2 : 4) : nullptr,
                          p.bias_type};
  if (p.c_transposed && pass.from_c && !pass.parks) gemm_take_turned(turned);
  for (int64_t i = group; i < group + rows; i += kRows)
    for (int64_t j = 0; j < p.cols && (!p.lower_only || p.col0 + j < p.row0 + i + kRows); j += pass.strip.cols)
      run_panel(p, pass, i, min64(kRows, p.rows - i), j);
  if (p.c_transposed && (pass.end || !pass.parks)) gemm_put_turned(turned);
}

}  // namespace

GemmTile gemm_tile() {
  return {kRows, kCols, kLanes};
}

void gemm_piece(const GemmPiece& p) {
  int64_t k = p.k0;
  do {  // at least once: k = 0 still writes its zeros and bias
    const Pass pass = pass_from(p, k);
    for (int64_t i = 0; i < p.rows; i += kGroup) run_group(p, pass, i);
    k += pass.kc;
  } while (k < p.k1);
}

}  // namespace ingot::INGOT_ISA
