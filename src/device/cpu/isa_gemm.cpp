// The inner parts of gemm.h for one instruction set: packing panels and the register tile. See
// gemm_kernels.h.
//
// The register tile is 8 x 48 with AVX-512 (24 accumulators, 3 vectors of B, broadcasts of A), 4 x 24 with
// AVX2 and 4 x 12 otherwise: per k step it loads kRows + kVecs times for kRows * kVecs fmas, under one load
// per fma everywhere.
#include "device/cpu/gemm_kernels.h"
#include "device/cpu/simd.h"
#include "device/cpu/transpose.h"

namespace ingot::INGOT_ISA {
namespace {

#if defined(INGOT_ISA_avx512)
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
constexpr int kVecs = 3;
constexpr int kCols = kVecs * kLanes;

INGOT_INLINE int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
INGOT_INLINE int64_t width_of(int64_t cols) {
  return (cols + kLanes - 1) / kLanes * kLanes;
}

// ---- packing
// ---------------------------------------------------------------------------------------------------

/// rows [k][rows <= kRows] of A stored [m, k] -> out[k][kRows]
template <class T>
void pack_a_plain(const T* a, int64_t lda, int64_t rows, int64_t kc, float* out) {
  int64_t k = 0;
#if defined(INGOT_ISA_avx512)
  if (rows == kRows)
    for (; k + 8 <= kc; k += 8) {
      __m256 r[8];
      for (int i = 0; i < 8; ++i) r[i] = load8(a + i * lda + k);
      transpose8(r);
      for (int i = 0; i < 8; ++i) _mm256_storeu_ps(out + (k + i) * 8, r[i]);
    }
#elif defined(INGOT_ISA_avx2)
  if (rows == kRows)
    for (; k + 8 <= kc; k += 8) {
      __m256 r[8] = {load8(a + k), load8(a + lda + k), load8(a + 2 * lda + k), load8(a + 3 * lda + k)};
      for (int i = 4; i < 8; ++i) r[i] = r[0];
      transpose8(r);
      for (int i = 0; i < 8; ++i) _mm_storeu_ps(out + (k + i) * 4, _mm256_castps256_ps128(r[i]));
    }
#endif
  for (; k < kc; ++k)
    for (int i = 0; i < kRows; ++i) out[k * kRows + i] = i < rows ? to_float(a[i * lda + k]) : 0.0f;
}

/// A stored [k, m]: kRows neighbours per k are contiguous
template <class T>
void pack_a_transposed(const T* a, int64_t lda, int64_t rows, int64_t kc, float* out) {
  if (rows == kRows) {
    for (int64_t k = 0; k < kc; ++k) {
#if defined(INGOT_ISA_avx512)
      _mm256_storeu_ps(out + k * 8, load8(a + k * lda));
#else
      for (int i = 0; i < kRows; ++i) out[k * kRows + i] = to_float(a[k * lda + i]);
#endif
    }
    return;
  }
  for (int64_t k = 0; k < kc; ++k)
    for (int i = 0; i < kRows; ++i) out[k * kRows + i] = i < rows ? to_float(a[k * lda + i]) : 0.0f;
}

template <class T>
void pack_a(const GemmPackA& p) {
  const T* a = static_cast<const T*>(p.a);
  for (int64_t k = p.k0; k < p.k1; k += p.kc) {
    const int64_t kc = min64(p.kc, p.k1 - k);
    float* block = p.out + (k - p.k0) * p.rows_padded + p.row_in_block * kc;
    if (!p.transposed) {
      for (int64_t i = 0; i < p.rows; i += kRows)
        pack_a_plain(a + (p.row0 + i) * p.lda + k, p.lda, min64(kRows, p.rows - i), kc, block + i * kc);
      continue;
    }
    // Few k rows at a time: neighbouring panels share lines, and rows 4 KiB apart share a cache set.
    constexpr int64_t kStep = 4;
    for (int64_t q = 0; q < kc; q += kStep)
      for (int64_t i = 0; i < p.rows; i += kRows)
        pack_a_transposed(a + (k + q) * p.lda + p.row0 + i, p.lda, min64(kRows, p.rows - i),
                          min64(kStep, kc - q), block + i * kc + q * kRows);
  }
}

/// [k, n] storage: rows of `cols` contiguous elements; only widening and zero padding
template <class T, class Out>
void pack_b_plain(const T* b, int64_t ldb, int64_t cols, int64_t kc, Out* out) {
  const int64_t width = width_of(cols);
  const int tail = static_cast<int>(cols % kLanes);
  for (int64_t k = 0; k < kc; ++k, b += ldb, out += width) {
    int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) store(out + j, load(b + j));
    if (tail != 0) store(out + j, load_tail(b + j, tail));
  }
}

/// [n, k] storage: square blocks turned in registers
template <class T, class Out>
void pack_b_transposed(const T* b, int64_t ldb, int64_t cols, int64_t kc, Out* out) {
  const int64_t width = width_of(cols);
  constexpr int64_t kAhead = 256 / sizeof(T);  // too many streams for the hardware's prefetcher
  for (int64_t k = 0; k < kc; k += kLanes) {
    const int depth = static_cast<int>(min64(kLanes, kc - k));
    for (int64_t j = 0; j < cols; j += kLanes) {
      const int count = static_cast<int>(min64(kLanes, cols - j));
      Vec r[kLanes];
      if (count == kLanes && depth == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          const T* line = b + (j + i) * ldb + k;
          __builtin_prefetch(line + kAhead);
          r[i] = load(line);
        }
        transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(out + (k + i) * width + j, r[i]);
      } else {
        for (int i = 0; i < kLanes; ++i) r[i] = i < count ? load_tail(b + (j + i) * ldb + k, depth) : zero();
        transpose(r);
        for (int i = 0; i < depth; ++i) store(out + (k + i) * width + j, r[i]);
      }
    }
  }
}

template <class T, class Out>
void pack_b(const GemmPackB& p) {
  const T* b = static_cast<const T*>(p.b);
  if (p.transposed)
    pack_b_transposed(b + p.col0 * p.ldb + p.k0, p.ldb, p.cols, p.kc, static_cast<Out*>(p.out));
  else
    pack_b_plain(b + p.k0 * p.ldb + p.col0, p.ldb, p.cols, p.kc, static_cast<Out*>(p.out));
}

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
  const char* fetch;  ///< brought to the level 2 cache, a line per k step
  int64_t fetch_step;
};

template <int NV>
INGOT_INLINE Vec load_cols(const float* p, int v, int cols) {
  return v + 1 < NV || cols == NV * kLanes ? load(p + v * kLanes)
                                           : load_tail(p + v * kLanes, cols - v * kLanes);
}
template <int NV>
INGOT_INLINE Vec load_cols(const bf16* p, int v, int cols) {
  return v + 1 < NV || cols == NV * kLanes ? load(p + v * kLanes)
                                           : load_tail(p + v * kLanes, cols - v * kLanes);
}
template <int NV, class T>
INGOT_INLINE void store_cols(T* p, int v, int cols, Vec x) {
  if (v + 1 < NV || cols == NV * kLanes)
    store(p + v * kLanes, x);
  else
    store_tail(p + v * kLanes, x, cols - v * kLanes);
}

template <int MR, int NV, class T>
void tile(int64_t kc, const float* a, const T* b, const TileIo& io) {
  Vec acc[MR][NV];
  // The results' lines travel while the chains run.
  const int64_t out_size = io.out_bf16 ? 2 : 4;
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    const char* line = static_cast<const char*>(io.out) + i * io.out_stride * out_size;
    __builtin_prefetch(line, 1);
    __builtin_prefetch(line + 64, 1);
    if (NV == 3) __builtin_prefetch(line + 128, 1);
  }
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
  const char* fetch = io.fetch;
  const int64_t fetch_step = io.fetch_step;
  for (int64_t k = 0; k < kc; ++k, a += kRows, b += NV * kLanes, fetch += fetch_step) {
    __builtin_prefetch(fetch, 0, 2);
    Vec bv[NV];
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const Vec x = set1(a[i]);
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) acc[i][v] = fma(x, bv[v], acc[i][v]);
    }
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

template <class T>
using TileFn = void (*)(int64_t, const float*, const T*, const TileIo&);

template <class T, int MR>
TileFn<T> tile_of_width(int64_t vecs) {
  return vecs == 3 ? &tile<MR, 3, T> : vecs == 2 ? &tile<MR, 2, T> : &tile<MR, 1, T>;
}

template <class T>
TileFn<T> tile_of(int64_t rows, int64_t vecs) {
  switch (rows) {
    case 1:
      return tile_of_width<T, 1>(vecs);
    case 2:
      return tile_of_width<T, 2>(vecs);
    case 3:
      return tile_of_width<T, 3>(vecs);
#if defined(INGOT_ISA_avx512)
    case 4:
      return tile_of_width<T, 4>(vecs);
    case 5:
      return tile_of_width<T, 5>(vecs);
    case 6:
      return tile_of_width<T, 6>(vecs);
    case 7:
      return tile_of_width<T, 7>(vecs);
#endif
    default:
      return tile_of_width<T, kRows>(vecs);
  }
}

// ---- one thread's piece
// ----------------------------------------------------------------------------------------

/// Where the piece's strip of B for one k block lies: panel j at b + panel * j, rows of its own width.
struct Strip {
  const void* b;
  int64_t panel;
  bool is_bf16;
};

Strip make_strip(const GemmPiece& p, int64_t k, int64_t kc) {
  const bool is_bf16 = p.b_type == DType::bf16;
  const int64_t size = is_bf16 ? 2 : 4;
  const bool direct = p.b_packed && (!is_bf16 || p.rows <= 2 * kRows);
  if (direct) {  // packed weights read in place; the last panel may be narrower
    const int64_t panel = kCols * p.b_k;
    const int64_t width = width_of(min64(kCols, p.cols));
    return {static_cast<const char*>(p.b) + (p.col0 / kCols * panel + k * width) * size, panel * size,
            is_bf16};
  }
  for (int64_t j = 0; j < p.cols; j += kCols) {
    const int64_t cols = min64(kCols, p.cols - j);
    float* out = p.b_strip + j * kc;
    if (p.b_packed) {
      const bf16* panel = static_cast<const bf16*>(p.b) + (p.col0 + j) * p.b_k;
      const int64_t count = kc * width_of(cols);
      for (int64_t i = 0; i < count; i += kLanes) store(out + i, load(panel + k * width_of(cols) + i));
      continue;
    }
    const GemmPackB pack{p.b, p.b_type, p.b_transposed, p.ldb, k, kc, p.col0 + j, cols, out, false};
    if (is_bf16)
      pack_b<bf16, float>(pack);
    else
      pack_b<float, float>(pack);
  }
  return {p.b_strip, kCols * kc * 4, false};
}

template <class T>
void run_panel(const GemmPiece& p, const Strip& strip, int64_t k, int64_t kc, int64_t i, int64_t rows,
               int64_t j, int64_t tile_offset) {
  const int64_t cols = min64(kCols, p.cols - j);
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
  const T* b = reinterpret_cast<const T*>(static_cast<const char*>(strip.b) + j / kCols * strip.panel);
  const int64_t number = i / kRows * ((p.cols + kCols - 1) / kCols) + j / kCols + tile_offset;
  const bool fetches = number < p.next_tiles;
  io.fetch = fetches ? p.next_b + number * p.next_jump : reinterpret_cast<const char*>(b);
  io.fetch_step = fetches ? p.next_step : 0;
  const float* a = p.a + (k - p.k0) * p.rows_padded + (p.row_in_block + i) * kc;
  tile_of<T>(rows, width_of(cols) / kLanes)(kc, a, b, io);
}

}  // namespace

GemmTile gemm_tile() {
  return {kRows, kCols, kLanes};
}

void gemm_pack_a(const GemmPackA& args) {
  if (args.type == DType::bf16)
    pack_a<bf16>(args);
  else
    pack_a<float>(args);
}

void gemm_pack_b(const GemmPackB& args) {
  if (args.type == DType::bf16 && args.keep_type)
    pack_b<bf16, bf16>(args);
  else if (args.type == DType::bf16)
    pack_b<bf16, float>(args);
  else
    pack_b<float, float>(args);
}

void gemm_piece(const GemmPiece& p) {
  const int64_t tiles = (p.rows + kRows - 1) / kRows * ((p.cols + kCols - 1) / kCols);
  int64_t k = p.k0;
  int64_t tiles_done = 0;
  do {  // at least once: k = 0 still writes its zeros and bias
    const int64_t kc = min64(p.kc, p.k1 - k);
    const Strip strip = make_strip(p, k, kc);
    for (int64_t i = 0; i < p.rows; i += kRows)
      for (int64_t j = 0; j < p.cols; j += kCols) {
        if (strip.is_bf16)
          run_panel<bf16>(p, strip, k, kc, i, min64(kRows, p.rows - i), j, tiles_done);
        else
          run_panel<float>(p, strip, k, kc, i, min64(kRows, p.rows - i), j, tiles_done);
      }
    k += kc;
    tiles_done += tiles;
  } while (k < p.k1);
}

}  // namespace ingot::INGOT_ISA
