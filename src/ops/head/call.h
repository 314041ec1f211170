// How a call of head divides its rows: what the kernels of the CPU and of GPUs share.
#pragma once
#include <algorithm>
#include <cstdint>

namespace ingot {

/// Floats from row to row of a chunk of logits. The weight gradient reads columns, and rows a multiple of 4
/// KiB apart would share a set of the caches (device/gemm/gemm_kernels.h).
inline int64_t head_row_stride(int64_t vocabulary) {
  return vocabulary % 1024 == 0 ? vocabulary + 16 : vocabulary;
}

/// Rows of a chunk. Without a choice of the attribute as many as 32 MiB of logits and input gradients hold,
/// at least 256: with fewer the weight is packed again for little work, and its gradient is added up as
/// often.
inline int64_t head_chunk_rows(int32_t chosen, int64_t rows, int64_t vocabulary, int64_t width) {
  constexpr int64_t kFloats = int64_t{8} << 20, kLeast = 256, kRound = 16;
  const int64_t fitting =
      chosen > 0 ? chosen
                 : std::max(kLeast, kFloats / std::max<int64_t>(vocabulary + width, 1) / kRound * kRound);
  return std::clamp<int64_t>(rows, 1, fitting);
}

/// f(first row, rows) for each chunk; without rows once for an empty one, so that gradients are still
/// written.
template <class F>
void each_head_chunk(int64_t rows, int64_t chunk, F&& f) {
  int64_t first = 0;
  do {
    f(first, std::min(chunk, rows - first));
    first += chunk;
  } while (first < rows);
}

}  // namespace ingot
