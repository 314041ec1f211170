// The interface between matvec.cpp (planning, threads) and isa_matvec.cpp. Internal to this folder.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"

namespace ingot {

/// Most rows of a product that reads packed weights once, from memory.
constexpr int64_t kFewRows = 4;

/// `rows` rows by panels [first, last) of one packed matrix.
struct FewRows {
  const float* x;      ///< words of the rows (gemm_kernels.h): f32, or pairs where the weights are bf16
  int64_t x_stride;    ///< words from row to row
  int64_t rows;        ///< 1 .. kFewRows
  const std::byte* b;  ///< panels
  DType b_type;        ///< f32, bf16 (as pairs) or u8 (int8_kernels.h)
  int64_t k, n;
  int64_t first, last;
  void* c;
  DType c_type;
  int64_t ldc;
  const void* bias;  ///< nullptr: none
  DType bias_type;
};

INGOT_ISA_KERNEL(void, few_rows, (const FewRows& args));

}  // namespace ingot
