// See gpu_tensor_cores.h.
#include "device/gemm/gpu_tensor_cores.h"

#include "base/error.h"
#include "device/cuda/kernel_images.h"
#include "device/gemm/library_choice.h"
#include "device/gpu/emulator.h"
#include "device/gpu/launcher.h"
#include "device/gpu/workspace.h"
#include "device/simd/gpu_array.h"

namespace ingot {
namespace {

constexpr int kHopper = 90;
constexpr const char* kHopperImage = "sm_90a";  ///< kernels of no other architecture have its instructions
constexpr int kEmulatedBlocks = 3;              ///< fewer than tiles, so that each takes several
/// Narrower outputs leave most of a tile empty.
constexpr int64_t kFewestColumns = 64;
/// What TMA's strides are multiples of, in bf16: 16 bytes.
constexpr int64_t kUnit = 8;

/// Whether what the thread launches has Hopper's instructions.
bool has_wgmma(const GpuLauncher& launcher) {
  if (launcher.compute_capability() != kHopper) return false;
  return !launcher.takes_compiled() ||
         cuda_driver::image_architectures().find(kHopperImage) != std::string::npos;
}

/// How many blocks a kernel of wgmma has at most; 0: there is no wgmma.
int wgmma_blocks() {
  if (const GpuLauncher* const launcher = gpu_launcher())
    return has_wgmma(*launcher) ? launcher->multiprocessors() : 0;
  return emulation().wgmma ? kEmulatedBlocks : 0;
}

/// The stride of an operand whose elements lie beside each other along one of its two axes; 0: it is no such.
int64_t stride_of(int64_t row, int64_t along) {
  return along == 1 ? row : row == 1 ? along : 0;
}

bool is_aligned(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % 16 == 0;
}

/// cuBLASLt takes the same.
bool wgmma_takes(const GpuMmaProduct& p) {
  const int64_t a_stride = stride_of(p.a_row, p.a_k), b_stride = stride_of(p.b_column, p.b_k);
  return p.m > 0 && p.n >= kFewestColumns && p.k > 0 && p.a_is != MmaOperand::split && a_stride > 0 &&
         a_stride % kUnit == 0 && b_stride > 0 && b_stride % kUnit == 0 && is_aligned(p.a) &&
         is_aligned(p.b) && (p.a_k == 1 || p.b_k != 1);
}

bool wgmma_takes(const GpuBatchedMmaProduct& b) {
  return wgmma_takes(b.first) && b.a_stride % kUnit == 0 && b.b_stride % kUnit == 0;
}

/// Makes an operand of `count` elements bf16 in memory.
void round_operand(const void*& operand, MmaOperand& is, int64_t count, GpuWorkspace& memory) {
  if (is != MmaOperand::rounded) return;
  auto* const rounded = memory.scratch<bf16>(count);
  INGOT_GPU_CALL(launch_array_copy)({}, {rounded, DType::bf16, operand, DType::f32, count, false});
  operand = rounded;
  is = MmaOperand::bf16;
}

/// From its first element to its last.
int64_t extent_of(int64_t rows, int64_t row, int64_t depth, int64_t along) {
  return (rows - 1) * row + (depth - 1) * along + 1;
}
int64_t extent_of_a(const GpuMmaProduct& p) {
  return extent_of(p.m, p.a_row, p.k, p.a_k);
}
int64_t extent_of_b(const GpuMmaProduct& p) {
  return extent_of(p.n, p.b_column, p.k, p.b_k);
}

/// Of groups and of many matrices.
void refuse_epilogues(const GpuMmaProduct& p) {
  INGOT_CHECK(epilogue_of(p) == Epilogue::none, "only a single product is capped or activated");
}

}  // namespace

void multiply_on_tensor_cores(const GpuMmaProduct& product) {
  const Epilogue epilogue = epilogue_of(product);
  INGOT_CHECK(epilogue == Epilogue::none ||
                  (product.a_is == MmaOperand::bf16 && product.a_k == 1 && product.b_k == 1),
              "a product that is capped or activated has rows of bf16, and its operands lie along k");
  INGOT_CHECK(epilogue != Epilogue::activation ||
                  (product.c_type == DType::bf16 && product.activation != ActivationFunction::soft_cap),
              "a product that is activated is bf16, and soft_cap is no activation of one");
  const int blocks = wgmma_blocks();
  LibraryChoice* const library = library_of_thread();
  if ((blocks == 0 && library == nullptr) || !wgmma_takes(product))
    return INGOT_GPU_CALL(launch_mma_product)({}, product);
  GpuWorkspace memory;
  GpuMmaProduct p = product;
  round_operand(p.a, p.a_is, extent_of_a(p), memory);
  round_operand(p.b, p.b_is, extent_of_b(p), memory);
  // What it does not add, and forms that it does not take, are ours for every number of rows.
  if (library != nullptr && p.bias == nullptr && p.plus == nullptr && epilogue == Epilogue::none &&
      library->multiply(p))
    return;
  if (blocks == 0) return INGOT_GPU_CALL(launch_mma_product)({}, p);
  if (p.m <= kFewRows && p.a_k == 1) return INGOT_GPU_CALL(launch_few_rows_wgmma_product)({}, p, blocks);
  INGOT_GPU_CALL(launch_wgmma_product)({}, p, blocks);
}

void multiply_rows_on_tensor_cores(const GpuGroupedMmaProduct& product) {
  refuse_epilogues(product.product);
  const int blocks = wgmma_blocks();
  GpuGroupedMmaProduct g = product;
  GpuMmaProduct& p = g.product;
  if (blocks == 0 || !wgmma_takes(p) || p.a_k != 1 || g.stride % kUnit != 0)
    return INGOT_GPU_CALL(launch_grouped_mma_rows)({}, product);
  GpuWorkspace memory;
  round_operand(p.a, p.a_is, extent_of_a(p), memory);
  round_operand(p.b, p.b_is, (g.groups - 1) * g.stride + extent_of_b(p), memory);
  INGOT_GPU_CALL(launch_grouped_wgmma_rows)({}, g, blocks);
}

void multiply_depth_on_tensor_cores(const GpuGroupedMmaProduct& product) {
  refuse_epilogues(product.product);
  const int blocks = wgmma_blocks();
  GpuGroupedMmaProduct g = product;
  GpuMmaProduct& p = g.product;
  if (blocks == 0 || !wgmma_takes(p) || p.a_k == 1 || p.b_k == 1)
    return INGOT_GPU_CALL(launch_grouped_mma_depth)({}, product);
  GpuWorkspace memory;
  round_operand(p.a, p.a_is, extent_of_a(p), memory);
  round_operand(p.b, p.b_is, extent_of_b(p), memory);
  INGOT_GPU_CALL(launch_grouped_wgmma_depth)({}, g, blocks);
}

void multiply_batch_on_tensor_cores(const GpuBatchedMmaProduct& b) {
  refuse_epilogues(b.first);
  const int blocks = wgmma_blocks();
  if (blocks > 0 && wgmma_takes(b) && b.first.a_k == 1 && b.first.b_k != 1)
    return INGOT_GPU_CALL(launch_batched_wgmma_product)({}, b, blocks);
  INGOT_GPU_CALL(launch_batched_mma_product)({}, b);
}

void multiply_symmetric_on_tensor_cores(const GpuBatchedMmaProduct& b) {
  refuse_epilogues(b.first);
  const int blocks = wgmma_blocks();
  if (blocks > 0 && wgmma_takes(b) && (b.first.a_k == 1) == (b.first.b_k == 1))
    return INGOT_GPU_CALL(launch_symmetric_wgmma_product)({}, b, blocks);
  INGOT_GPU_CALL(launch_symmetric_mma_product)({}, b);
}

}  // namespace ingot
