// Matrices of bf16 of which Hopper's tensor memory accelerator (TMA) copies tiles into shared memory, and
// what it reads about them. Plain.
#pragma once
#include <cstdint>

namespace ingot {

/// `count` matrices, each [rows, columns] with columns beside each other. What a tile has beyond the ends of
/// rows, columns and matrices is 0.
struct TiledMatrices {
  const void* first = nullptr;  ///< at a multiple of 16 bytes
  int64_t columns = 0, rows = 0, count = 1;
  int64_t row_stride = 0, matrix_stride = 0;  ///< in elements, multiples of 8
  int tile_rows = 0;                          ///< of kTileColumns columns each; at most 256
};
constexpr int kTileColumns = 64;  ///< 128 bytes, the span that swizzling turns over
constexpr int kTileRowBytes = kTileColumns * 2;

/// A CUtensorMap, made by the launches' device (launcher.h); the emulator's is TiledMatrices.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

}  // namespace ingot
