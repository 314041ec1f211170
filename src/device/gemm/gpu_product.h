// Products on a GPU, C = A B (+ C) (+ bias): exact ones of f32, and those of bf16 on tensor cores. Plain.
#pragma once
#include "base/dtype.h"
#include "device/gpu/anywhere.h"
#include "device/gpu/launch.h"
#include "device/simd/activation.h"

namespace ingot {

/// Element (i, k) of A is a[i * a_row + k * a_k], element (k, j) of B is b[k * b_k + j * b_column].
struct GpuProductOperands {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t a_row = 0, a_k = 1;
  const void* b = nullptr;
  int64_t b_k = 0, b_column = 1;
  void* c = nullptr;  ///< [m, n], rows c_row apart
  int64_t c_row = 0;
  const float* bias = nullptr;  ///< [n], or none
  bool accumulate = false;
};

/// Each output is one chain of fused multiply-adds over ascending k, from 0 or from C, and then the bias: the
/// CPU's bits (docs/numerics.md, rule 2). All are f32, but in launch_product(), where one operand may be bf16
/// and so may C: then the chain begins at 0, and what was there is added before the result is rounded.
struct GpuProduct : GpuProductOperands {
  DType a_type = DType::f32, b_type = DType::f32, c_type = DType::f32;
};
INGOT_GPU_KERNEL(void, launch_product, (GpuStream stream, const GpuProduct& product));

/// What tensor cores multiply: bf16; f32 that is read as its rounding to bf16; or f32 as the sum of two bf16,
/// its rounding and that of what is left (A alone).
enum class MmaOperand { bf16, rounded, split };

/// Each output is one accumulator over ascending k from 0, in instructions of 16 of k (of a split A for each
/// 16 the roundings, then what is left); then C is added, then the bias, and the result rounded once. It
/// follows from its row of A, its column of B and k alone (docs/numerics.md, "On tensor cores"). Of a_row and
/// a_k one is 1, and of b_k and b_column. With `plus`, which lies as C does,
///   plus_factor plus + factor (the product)   stands for the product,
/// and with a cap or a scale (for some alone)
///   scale soft_cap(the product)               does, in the bits of capped_and_scaled() of soft_cap.h.
/// With `activated` (C is bf16, and so is this, which lies as C does) the product also stores the function of
/// what it stored in C, in the bits of a kernel that reads it there.
struct GpuMmaProduct : GpuProductOperands {
  MmaOperand a_is = MmaOperand::bf16, b_is = MmaOperand::bf16;
  DType c_type = DType::f32;  ///< or bf16
  const bf16* plus = nullptr;
  float plus_factor = 0, factor = 1;
  SoftCapFactors cap;
  float scale = 1;
  bf16* activated = nullptr;
  ActivationFunction activation = ActivationFunction::gelu;  ///< but soft_cap
};
/// What a product does with its sums, but for storing them.
enum class Epilogue { none, cap, activation };
INGOT_ANYWHERE Epilogue epilogue_of(const GpuMmaProduct& p) {
  if (p.activated != nullptr) return Epilogue::activation;
  return p.cap.cap > 0 || p.scale != 1 ? Epilogue::cap : Epilogue::none;
}
/// With an epilogue where A is bf16.
INGOT_GPU_KERNEL(void, launch_mma_product, (GpuStream stream, const GpuMmaProduct& product));
/// The same by Hopper's instructions, by so many blocks at most, where wgmma_takes() it. With an epilogue
/// where rows of A, and columns of B, lie along k.
INGOT_GPU_KERNEL(void, launch_wgmma_product, (GpuStream stream, const GpuMmaProduct& product, int blocks));
/// Of kFewRows rows at most, which lie along k: a block has few columns, so that many read B.
INGOT_GPU_KERNEL(void, launch_few_rows_wgmma_product,
                 (GpuStream stream, const GpuMmaProduct& product, int blocks));
constexpr int kFewRows = 16;

/// Moves the operands so many elements on.
INGOT_ANYWHERE void advance_bytes(GpuProductOperands& p, int64_t a, int64_t b, int64_t c) {
  p.a = static_cast<const char*>(p.a) + a;
  p.b = static_cast<const char*>(p.b) + b;
  p.c = static_cast<char*>(p.c) + c;
}
INGOT_ANYWHERE void advance(GpuProduct& p, int64_t a, int64_t b, int64_t c) {
  advance_bytes(p, 4 * a, 4 * b, 4 * c);  // of f32
}
INGOT_ANYWHERE void advance(GpuMmaProduct& p, int64_t a, int64_t b, int64_t c) {
  const auto bytes = [](MmaOperand is) { return is == MmaOperand::bf16 ? 2 : 4; };
  advance_bytes(p, a * bytes(p.a_is), b * bytes(p.b_is), c * (p.c_type == DType::bf16 ? 2 : 4));
  if (p.plus != nullptr) p.plus += c;
}

/// Products of groups of rows, e of the rows offsets[e] .. offsets[e + 1] (on the device), each at most the
/// whole's; rows from offsets[groups] on are neither read nor written.
template <class Product>
struct GpuGroupedProductOf {
  Product product;
  const int32_t* offsets = nullptr;  ///< [groups + 1], ascending, from 0
  int64_t groups = 0, stride = 0;
};
using GpuGroupedProduct = GpuGroupedProductOf<GpuProduct>;
using GpuGroupedMmaProduct = GpuGroupedProductOf<GpuMmaProduct>;
/// C[r] = A[r] B_e for the rows r of group e: product.m counts the rows that there may be, and B's are
/// `stride` apart.
INGOT_GPU_KERNEL(void, launch_grouped_rows, (GpuStream stream, const GpuGroupedProduct& product));
INGOT_GPU_KERNEL(void, launch_grouped_mma_rows, (GpuStream stream, const GpuGroupedMmaProduct& product));
INGOT_GPU_KERNEL(void, launch_grouped_wgmma_rows,
                 (GpuStream stream, const GpuGroupedMmaProduct& product, int blocks));
/// C_e = the sum over the rows r of group e of A's column r by B's row r: product.k counts the rows that
/// there may be, and C's are `stride` apart. A group without rows gets 0, or keeps C.
INGOT_GPU_KERNEL(void, launch_grouped_depth, (GpuStream stream, const GpuGroupedProduct& product));
INGOT_GPU_KERNEL(void, launch_grouped_mma_depth, (GpuStream stream, const GpuGroupedMmaProduct& product));
INGOT_GPU_KERNEL(void, launch_grouped_wgmma_depth,
                 (GpuStream stream, const GpuGroupedMmaProduct& product, int blocks));

/// Products of `batch` matrices each, whose elements are so far apart; `first` is that of the first ones.
template <class Product>
struct GpuBatchedProductOf {
  Product first;
  int64_t batch = 0, a_stride = 0, b_stride = 0, c_stride = 0;
};
using GpuBatchedProduct = GpuBatchedProductOf<GpuProduct>;
using GpuBatchedMmaProduct = GpuBatchedProductOf<GpuMmaProduct>;
INGOT_GPU_KERNEL(void, launch_batched_product, (GpuStream stream, const GpuBatchedProduct& product));
/// Of bf16 alone.
INGOT_GPU_KERNEL(void, launch_batched_mma_product, (GpuStream stream, const GpuBatchedMmaProduct& product));
INGOT_GPU_KERNEL(void, launch_batched_wgmma_product,
                 (GpuStream stream, const GpuBatchedMmaProduct& product, int blocks));

/// The same of products that are symmetric but for rounding, [m, m] (gemm_symmetric()), as `plus` is: the
/// lower triangle is computed and mirrored. Nothing is accumulated.
INGOT_GPU_KERNEL(void, launch_symmetric_mma_product, (GpuStream stream, const GpuBatchedMmaProduct& product));
INGOT_GPU_KERNEL(void, launch_symmetric_wgmma_product,
                 (GpuStream stream, const GpuBatchedMmaProduct& product, int blocks));
/// The exact one. With `plus` C becomes
///   diagonal I + plus_factor plus + factor (the product)
struct GpuSymmetricProduct {
  GpuBatchedProduct of;
  const float* plus = nullptr;
  float diagonal = 0, plus_factor = 0, factor = 1;
};
INGOT_GPU_KERNEL(void, launch_symmetric_product, (GpuStream stream, const GpuSymmetricProduct& product));

/// to[j] (+)= the sum over rows of x[r * stride + j]: chunks of `chunk` rows, then their sums in order.
struct GpuColumnSums {
  const void* x = nullptr;
  DType x_type = DType::f32;  ///< or bf16
  int64_t rows = 0, columns = 0, stride = 0, chunk = 1;
  float* to = nullptr;
  bool accumulate = false;
};
INGOT_GPU_KERNEL(void, launch_column_sums, (GpuStream stream, const GpuColumnSums& sums));

}  // namespace ingot
