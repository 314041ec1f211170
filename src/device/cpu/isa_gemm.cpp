// The register tile of matrix products and one thread's piece of work, for one instruction set. See
// gemm_kernels.h.
#include "device/cpu/gemm_chain.h"
#include "device/cpu/gemm_kernels.h"
#include "device/cpu/gemm_tile.h"
#include "device/cpu/int8_kernels.h"
#include "device/cpu/simd.h"

namespace ingot::INGOT_ISA {
namespace {

// ---- the register tile
// -----------------------------------------------------------------------------------------

/// Where a tile's chains come from and go to.
struct TileIo {
  const float* in;  ///< nullptr: zeros
  int64_t in_stride;
  void* out;
  int64_t out_stride;
  bool out_bf16;
  const void* bias;  ///< nullptr: none; at the tile's first column
  bool bias_bf16;
  int cols;
  const float* next;  ///< where the tile after this one starts, if it starts from C
  int64_t next_stride;
  const char* fetch;  ///< brought to the level 2 cache, a line per k step
  int64_t fetch_step, fetch_run, fetch_jump;  ///< bytes from line to line; after so many of them: bytes more
  const float* b_rows;                        ///< B where it lies, if the tile packs it
  int64_t ldb;
};

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

/// How a tile reads A: words from row to row, and from step to step.
struct PackedA {
  static constexpr int64_t row(int64_t) { return 1; }
  static constexpr int64_t step(int64_t) { return kRows; }
};
/// Words that are pairs of bf16 need not be aligned as words.
struct RowsOfA {
  static constexpr int64_t row(int64_t lda) { return lda; }
  static constexpr int64_t step(int64_t) { return 1; }
};
/// Every step is another line, often of another page, which the hardware does not foresee.
struct ColumnsOfA {
  static constexpr int64_t row(int64_t) { return 1; }
  static constexpr int64_t step(int64_t lda) { return lda; }
  static constexpr int64_t kAhead = 16;
};

/// How a tile reads B: a panel of the strip, W vectors wide, of which it may take fewer.
template <int W>
struct StripOfB {
  const float* at;
  StripOfB(const float* b, const TileIo&) : at(b) {}
  INGOT_INLINE Vec vector(int v) const { return load(at + v * kLanes); }
  INGOT_INLINE void next() { at += W * kLanes; }
};
/// Rows where they lie, which it leaves in the strip for the tiles below: a pass over B less.
template <int NV>
struct RowsOfB {
  static constexpr int64_t kAhead = 8;
  const float* at;
  int64_t ldb;
  float* strip;
  RowsOfB(const float* b, const TileIo& io) : at(io.b_rows), ldb(io.ldb), strip(const_cast<float*>(b)) {}
  INGOT_INLINE Vec vector(int v) {
    __builtin_prefetch(at + kAhead * ldb + v * kLanes);
    const Vec x = load(at + v * kLanes);
    store(strip + v * kLanes, x);
    return x;
  }
  INGOT_INLINE void next() { at += ldb, strip += NV * kLanes; }
};

template <int MR, int NV, class Chain, class A, class B>
INGOT_INLINE void run_step(const float* a, int64_t lda, B& b, Vec (&acc)[MR][NV]) {
  Vec bv[NV];
#pragma GCC unroll 3
  for (int v = 0; v < NV; ++v) bv[v] = b.vector(v);
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    float word;
    std::memcpy(&word, a + i * A::row(lda), sizeof(word));
    const Vec x = set1(word);
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) acc[i][v] = Chain::step(x, bv[v], acc[i][v]);
  }
  b.next();
}

/// The lines that a tile fetches, one after the other.
struct Fetch {
  const char* line;
  int64_t step, run, jump, left;
  explicit Fetch(const TileIo& io) : line(io.fetch), step(io.fetch_step), run(io.fetch_run), jump(io.fetch_jump), left(run) {}
  INGOT_INLINE void next() {
    __builtin_prefetch(line, 0, 2);
    line += step;
    if (--left == 0) line += jump, left = run;
  }
};

template <int MR, int NV, class Chain, class A, class B>
INGOT_INLINE void run_chains(int64_t kc, const float* a, int64_t lda, B b, const TileIo& io, Vec (&acc)[MR][NV]) {
  Fetch fetch(io);
  int64_t k = 0;
  if constexpr (std::is_same_v<A, RowsOfA> && MR == kRows) {
    // The next rows' lines: 16 steps use one line of each.
    constexpr int kPerRow = 16 / kRows;
    for (; k + 16 <= kc; k += 16) {
      const float* next = a + kRows * lda;
      for (int i = 0; i < kRows; ++i, next += lda) {
        __builtin_prefetch(next);
#pragma GCC unroll 4
        for (int j = 0; j < kPerRow; ++j) {
          fetch.next();
          run_step<MR, NV, Chain, A>(a, lda, b, acc);
          a += 1;
        }
      }
    }
  }
  for (; k < kc; ++k, a += A::step(lda)) {
    fetch.next();
    if constexpr (std::is_same_v<A, ColumnsOfA>) __builtin_prefetch(a + A::kAhead * lda);
    run_step<MR, NV, Chain, A>(a, lda, b, acc);
  }
}

/// NV vectors of a panel.
template <int MR, int NV, class Chain, class A, class B = StripOfB<NV>>
void tile(int64_t kc, const float* a, int64_t lda, const float* b, const TileIo& io) {
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
    run_chains<MR, NV, Chain, A>(kc, a, lda, B(b, io), io, acc);
    pin(acc);
    restore_mode(mode);
  } else {
    run_chains<MR, NV, Chain, A>(kc, a, lda, B(b, io), io, acc);
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

using TileFn = void (*)(int64_t, const float*, int64_t, const float*, const TileIo&);

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

/// That of the first rows, which packs B.
template <class A>
TileFn packing_tile_of(int64_t vecs) {
  return vecs == 3   ? &tile<kRows, 3, Plain, A, RowsOfB<3>>
         : vecs == 2 ? &tile<kRows, 2, Plain, A, RowsOfB<2>>
                     : &tile<kRows, 1, Plain, A, RowsOfB<1>>;
}
TileFn packing_tile_of(ALayout a, int64_t vecs) {
  return a == ALayout::columns ? packing_tile_of<ColumnsOfA>(vecs)
         : a == ALayout::rows  ? packing_tile_of<RowsOfA>(vecs)
                               : packing_tile_of<PackedA>(vecs);
}

TileFn tile_of(bool pairs, ALayout a, int64_t rows, int64_t vecs, int64_t panel) {
  if (!pairs) return tile_of_chain<Plain>(a, rows, vecs, panel);
#if defined(INGOT_ISA_avx512)
  if (active_isa() == Isa::avx512bf16) return tile_of_chain<Dot>(a, rows, vecs, panel);
#endif
  return tile_of_chain<TwoFmas>(a, rows, vecs, panel);
}

// ---- one thread's piece
// ----------------------------------------------------------------------------------------

/// Where the piece's strip of B for one range of steps lies: panel j at b + panel * j, rows of its own width.
struct Strip {
  const float* b;
  int64_t panel;  ///< words
  int64_t cols = kCols;  ///< of every panel but the last
};

/// Whether the first tile of a panel packs it: rows of f32 in whole vectors, and a whole tile.
bool tile_packs(const GemmPiece& p, int64_t cols) {
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
    else if (!tile_packs(p, cols))
      gemm_pack_b({p.b, p.b_type, p.b_transposed, p.pairs, p.ldb, p.depth, k, kc, p.col0 + j, cols, out});
  }
  return {p.b_strip, even * kc, even};
}

/// What will be packed after the strip that is being multiplied. Tile t brings a part of it to the level 2 cache, a line a step,
/// while t < tiles: of transposed B some columns, else a line of each row.
struct Ahead {
  const char* from;
  int64_t step, run, jump;   ///< bytes from line to line; after `run` of them `jump` more
  int64_t tile_jump, tiles;  ///< bytes from tile to tile
};

Ahead ahead_of(const GemmPiece& p, int64_t next_k, int64_t kc) {
  const int64_t size = p.b_type == DType::bf16 ? 2 : 4, elements = p.pairs ? 2 : 1, row = p.ldb * size;
  const int64_t k = next_k * elements;
  const void* from = p.next_b;
  if (next_k < p.k1) from = static_cast<const char*>(p.b) + (p.b_transposed ? p.col0 * p.ldb + k : k * p.ldb + p.col0) * size;
  if (p.b_packed || from == nullptr || kc == 0) return {nullptr, 0, 1, 0, 0, 0};
  if (p.b_transposed) {
    const int64_t lines = (kc * elements * size + 63) / 64, columns = kc / lines > 1 ? kc / lines : 1;
    return {static_cast<const char*>(from), 64, lines, row - lines * 64, columns * row, (p.cols + columns - 1) / columns};
  }
  return {static_cast<const char*>(from), elements * row, kc + 1, 0, 64, (p.cols * size + 63) / 64};
}

void run_panel(const GemmPiece& p, const Strip& strip, const Ahead& ahead, int64_t k, int64_t kc, int64_t i, int64_t rows,
               int64_t j) {
  const int64_t panel = min64(strip.cols, p.cols - j);
  const bool narrows = p.lower_only && rows == kRows && panel == kCols;  // to the vectors that touch the triangle
  const int64_t cols = narrows ? min64(panel, width_of(p.row0 + i + rows - p.col0 - j)) : panel;
  const bool end = p.last && k + kc == p.k1;
  const bool in_strip = p.c_type == DType::bf16 && p.k1 - p.k0 > kc;  // chains parked in f32 between k blocks
  const bool from_c = p.from_c || k > p.k0;
  const int64_t strip_width = (p.cols + kCols - 1) / kCols * kCols;
  float* parked = p.c_strip + i * strip_width + j;
  const int64_t offset = i * p.ldc + p.col0 + j;
  float* c_f32 = static_cast<float*>(p.c) + offset;
  bf16* c_bf16 = static_cast<bf16*>(p.c) + offset;
  TileIo io;
  io.in = !from_c ? nullptr : in_strip ? parked : c_f32;
  io.in_stride = in_strip ? strip_width : p.ldc;
  io.out_bf16 = p.c_type == DType::bf16 && (end || !in_strip);
  io.out = io.out_bf16 ? static_cast<void*>(c_bf16)
           : in_strip  ? static_cast<void*>(parked)
                       : static_cast<void*>(c_f32);
  io.out_stride = io.out_bf16 || !in_strip ? p.ldc : strip_width;
  io.bias_bf16 = p.bias_type == DType::bf16;
  io.bias = nullptr;
  if (end && p.bias != nullptr)
    io.bias = static_cast<const char*>(p.bias) + (p.col0 + j) * (io.bias_bf16 ? 2 : 4);
  io.cols = static_cast<int>(cols);
  const bool row_ends = j + strip.cols >= p.cols;
  const int64_t next_i = row_ends ? i + kRows : i, next_j = row_ends ? 0 : j + strip.cols;
  const bool reads_next = from_c && !in_strip && next_i < p.rows;
  io.next = reads_next ? static_cast<float*>(p.c) + next_i * p.ldc + p.col0 + next_j : nullptr;
  io.next_stride = p.ldc;
  const float* b = strip.b + j / strip.cols * strip.panel;
  const int64_t number = i / kRows * ((p.cols + kCols - 1) / kCols) + j / strip.cols;
  const bool fetches = number < ahead.tiles;
  io.fetch = fetches ? ahead.from + number * ahead.tile_jump : reinterpret_cast<const char*>(b);
  io.fetch_step = fetches ? ahead.step : 0;
  io.fetch_run = ahead.run, io.fetch_jump = fetches ? ahead.jump : 0;
  const int64_t step = k - p.k0;
  const int64_t a_offset = p.a_layout == ALayout::rows      ? i * p.lda + step
                           : p.a_layout == ALayout::columns ? step * p.lda + i
                                                            : step * p.rows_padded + (p.row_in_block + i) * kc;
  const bool packs = i == 0 && tile_packs(p, cols);
  io.b_rows = packs ? static_cast<const float*>(p.b) + k * p.ldb + p.col0 + j : nullptr;
  io.ldb = p.ldb;
  const int64_t vecs = width_of(cols) / kLanes;
  const TileFn run = packs ? packing_tile_of(p.a_layout, vecs) : tile_of(p.pairs, p.a_layout, rows, vecs, width_of(panel) / kLanes);
  run(kc, p.a + a_offset, p.lda, b, io);
}

}  // namespace

GemmTile gemm_tile() {
  return {kRows, kCols, kLanes};
}

void gemm_piece(const GemmPiece& p) {
  int64_t k = p.k0;
  do {  // at least once: k = 0 still writes its zeros and bias
    const int64_t kc = min64(p.kc, p.k1 - k);
    const Strip strip = make_strip(p, k, kc);
    const Ahead ahead = ahead_of(p, k + kc, kc);
    for (int64_t i = 0; i < p.rows; i += kRows)
      for (int64_t j = 0; j < p.cols && (!p.lower_only || p.col0 + j < p.row0 + i + kRows); j += strip.cols)
        run_panel(p, strip, ahead, k, kc, i, min64(kRows, p.rows - i), j);
    k += kc;
  } while (k < p.k1);
}

}  // namespace ingot::INGOT_ISA
