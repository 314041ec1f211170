// What gemm.cpp (planning, threads) asks of isa_gemm.cpp (packing and the register tile). Internal to
// device/cpu.
//
// Packed A of a block (rows_padded x k1-k0): for each k block of kc, for each panel of kRows rows:
// [kc][kRows], missing rows 0. Packed B: panels of kCols columns, each [k][width] with width = its columns
// rounded up to whole vectors.
#pragma once
#include <cstdint>

#include "device/cpu/isa.h"
#include "tensor/dtype.h"

namespace ingot {

struct GemmTile {
  int64_t rows, cols, lanes;
};

struct GemmPackA {
  const void* a;  ///< element (row 0, k 0) of the problem
  DType type;
  bool transposed;
  int64_t lda;
  int64_t row0, rows;    ///< of the problem, to be packed
  int64_t k0, k1, kc;    ///< of the problem
  int64_t rows_padded;   ///< of the block
  int64_t row_in_block;  ///< where row0 goes; a multiple of the tile's rows
  float* out;            ///< the block
};

struct GemmPackB {
  const void* b;  ///< element (k 0, column 0) of the problem
  DType type;
  bool transposed;
  int64_t ldb;
  int64_t k0, kc, col0, cols;  ///< cols <= tile cols
  void* out;                   ///< [kc][width]: f32, or B's type where keep_type
  bool keep_type;
};

/// One thread's share: rows x cols of C over k0..k1.
struct GemmPiece {
  const float* a;  ///< the block's packed A
  int64_t rows_padded, row_in_block, rows;
  const void* b;
  DType b_type;
  bool b_transposed, b_packed;
  int64_t ldb;
  int64_t b_k;  ///< rows of the packed matrix
  int64_t col0, cols;
  int64_t k0, k1, kc;
  void* c;  ///< element (first row of the piece, column 0)
  DType c_type;
  int64_t ldc;
  bool from_c;  ///< the chains go on from C
  bool last;    ///< k1 is the end: add the bias, round
  const void* bias;
  DType bias_type;
  /// What this thread will probably pack next: fetched while the tiles of this piece run, one line per k
  /// step. Tile t walks from next_b + t * next_jump in steps of next_step, while t < next_tiles.
  const char* next_b;
  int64_t next_jump, next_step, next_tiles;
  float* b_strip;  ///< kc x cols rounded up to whole panels
  float* c_strip;  ///< rows x cols rounded up, where C is bf16 and k1 - k0 > kc
};

INGOT_ISA_KERNEL(GemmTile, gemm_tile, ());
INGOT_ISA_KERNEL(void, gemm_pack_a, (const GemmPackA& args));
INGOT_ISA_KERNEL(void, gemm_pack_b, (const GemmPackB& args));
INGOT_ISA_KERNEL(void, gemm_piece, (const GemmPiece& args));

}  // namespace ingot
