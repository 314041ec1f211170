// What gemm.cpp (planning, threads) asks of isa_gemm_pack.cpp (panels) and isa_gemm.cpp (the register tile).
// Internal to this folder.
//
// Chains advance in steps of one 32-bit word per operand. A step is one k, widened to f32; or, where both
// operands are bf16 (`pairs`), two of them: k = 2 step in the low half, 2 step + 1 in the high half, 0 beyond
// an odd k. All k0, k1 and kc below count steps.
//
// A that lies in memory as words (f32; rows of pairs with an even k) can be read where it is. Else it is packed, by the pieces of
// the first columns while they multiply (`a_source`); the others read what those have left.
//
// Packed A of a block (rows_padded x k1-k0): for each range of kc steps, for each panel of kRows rows:
// [kc][kRows] words, missing rows 0. Packed B: panels of kCols columns, each [k][width] words with width =
// its columns rounded up to whole vectors.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"

namespace ingot {

/// rows and columns: in place, stored [m, k] or [k, m].
enum class ALayout : uint8_t { packed, rows, columns };

constexpr int64_t kMaxPanels = 2;  ///< columns of a piece, in panels

struct GemmTile {
  int64_t rows, cols, lanes;
};

/// Rows of A as panels [kc][kRows], one after the other.
struct GemmPackA {
  const void* a;  ///< element (first of the rows, k 0) of the problem
  DType type;
  bool transposed, pairs;
  int64_t lda;
  int64_t depth;  ///< k of the problem, in elements
  int64_t rows, k, kc;
  float* out;
};

struct GemmPackB {
  const void* b;  ///< element (k 0, column 0) of the problem
  DType type;
  bool transposed, pairs;
  int64_t ldb;
  int64_t depth;               ///< k of the problem, in elements
  int64_t k0, kc, col0, cols;  ///< cols <= tile cols
  float* out;                  ///< [kc][width]
};

/// A strip of B that is to be packed.
struct GemmStrip {
  const void* b = nullptr;  ///< element (its first step, its first column); nullptr: unknown
  int64_t kc = 0, cols = 0;
  bool whole = false;  ///< no step lacks half of its pair
};

/// One thread's share: rows x cols of C, at most kMaxPanels panels of columns, over k0..k1. Each kc steps are a pass over the tiles, with a
/// strip of B packed for them. Where B's rows allow it the last tiles of a pass pack the next strip while they multiply, in the other one
/// of two places.
struct GemmPiece {
  ALayout a_layout;
  const float* a;   ///< in place: the word (first row of the piece, step k0)
  float* a_packed;  ///< the block's packed A
  const void*
      a_source;  ///< element (first row of the piece, k 0), to be packed by this piece, which is one panel wide; or nullptr
  DType a_type;
  bool a_transposed;
  int64_t lda;  ///< in place: words from row to row, or from column to column; of the source: elements
  int64_t rows_padded, row_in_block, rows;
  const void* b;
  DType b_type;
  bool b_transposed, pairs;
  bool b_packed;  ///< B is PackedWeights: f32 words, or pairs of bf16 (whatever A is)
  int64_t ldb;
  int64_t depth;  ///< k of the problem, in elements
  int64_t col0, cols;
  bool lower_only;  ///< vectors of tiles that lie above the diagonal stay as they are
  int64_t row0;     ///< first row of the piece in the problem
  int64_t k0, k1, kc;
  void* c;  ///< element (first row of the piece, column 0)
  DType c_type;
  bool c_transposed;  ///< C is stored [n, m], the bias begins at the piece's first row
  int64_t ldc;
  bool from_c;  ///< the chains go on from C
  bool last;    ///< k1 is the end: add the bias, round
  const void* bias;
  DType bias_type;
  GemmStrip next;  ///< of the piece that this thread will probably take after this one
  float* b_strips
      [2];  ///< the places, the first pass's first: kc x cols rounded up to whole panels, the most of this piece and the next
  bool b_ready;    ///< the first strip has been packed by the piece before
  float* c_group;  ///< where C is transposed: 2 kRows x cols rounded up
  float* c_strip;  ///< rows x cols rounded up, where C is bf16 and k1 - k0 > kc
};

/// rows (at most 2 kRows) x cols chains, and their place where C is stored [n, m].
struct GemmTurned {
  float* chains;
  int64_t width;  ///< words from row to row, beyond the last column whole vectors
  int64_t rows, cols;
  void* c;  ///< element (row 0, column 0)
  DType c_type;
  int64_t ldc;       ///< from column to column
  const void* bias;  ///< of the rows; nullptr: none
  DType bias_type;
};

INGOT_ISA_KERNEL(GemmTile, gemm_tile, ());
INGOT_ISA_KERNEL(void, gemm_pack_a, (const GemmPackA& args));
INGOT_ISA_KERNEL(void, gemm_pack_b, (const GemmPackB& args));
/// Returns in which of its two places the next piece's strip has been packed; -1: in none.
INGOT_ISA_KERNEL(int, gemm_piece, (const GemmPiece& args));
/// Chains from f32 C, and to C with the bias added.
INGOT_ISA_KERNEL(void, gemm_take_turned, (const GemmTurned& args));
INGOT_ISA_KERNEL(void, gemm_put_turned, (const GemmTurned& args));
/// Of C [m, m]: copies what of rows [row0, row0 + rows) lies below the diagonal to above it. row0 is a multiple of kMirrorRows.
INGOT_ISA_KERNEL(void, gemm_mirror, (float* c, int64_t m, int64_t ldc, int64_t row0, int64_t rows));
constexpr int64_t kMirrorRows = 16;

}  // namespace ingot
