// Products of bf16 on the tensor cores of a GPU, or on a driver that is faked (INGOT_CUDA_LIBRARY): by
// Hopper's instructions, where the GPU has them, and by those of every GPU. Both are near the product in
// double, give a row the same bits alone and among others, and let no NaN out of its row. Whether they have
// each other's bits, and those of tiles of another width, is said and not demanded (docs/numerics.md, "On
// tensor cores").
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "device/cuda/cuda_device.h"
#include "device/gemm/gpu_tensor_cores.h"
#include "support/activated_products.h"
#include "support/capped_products.h"

namespace ingot::test::cuda_products_gpu_test {

constexpr int64_t kRows = 136, kDepth = 72, kWide = 1032, kNarrow = 520;  // columns of tiles of 256, of 128
using Multiply = void (*)(const GpuMmaProduct& product);

/// Memory of the GPU.
class OnGpu {
 public:
  OnGpu(const void* from, int64_t bytes) : bytes_(bytes), data_(cuda_device().allocate(bytes)) {
    if (from != nullptr) cuda_device().upload(data_, from, bytes);
  }
  ~OnGpu() { cuda_device().release(data_, bytes_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  void* data() const { return data_; }

 private:
  const int64_t bytes_;
  void* const data_;
};

/// Rows [begin, begin + count) of A by the first n columns of B.
std::vector<float> rows_of(Multiply multiply, const MmaTestOperand& a, const MmaTestOperand& b, int64_t begin,
                           int64_t count, int64_t n) {
  std::vector<float> c(static_cast<size_t>(count * n));
  const auto bytes = static_cast<int64_t>(c.size() * sizeof(float));
  const OnGpu on_a(a.data(), a.bytes()), on_b(b.data(), b.bytes()), on_c(nullptr, bytes);
  GpuMmaProduct p = product_of(a, b, count, n, kDepth);
  p.a = on_a.data(), p.b = on_b.data(), p.c = on_c.data();
  advance(p, begin * a.row, 0, 0);
  const LaunchOn on(&cuda_device());
  multiply(p);
  cuda_device().download(c.data(), on_c.data(), bytes);
  return c;
}

void by_instructions_of_every_gpu(const GpuMmaProduct& p) {
  INGOT_GPU_CALL(launch_mma_product)({}, p);
}

class CudaProducts : public ::testing::TestWithParam<Multiply> {};
INSTANTIATE_TEST_SUITE_P(All, CudaProducts,
                         ::testing::Values(&multiply_on_tensor_cores, &by_instructions_of_every_gpu));

TEST_P(CudaProducts, AreNearTheProductInDouble) {
  for (const bool a_along_k : {true, false})
    for (const bool b_along_k : {true, false}) {
      if (!a_along_k && b_along_k) continue;
      const MmaTestOperand a(MmaOperand::bf16, kRows, kDepth, a_along_k, 0, 1),
          b(MmaOperand::rounded, kWide, kDepth, b_along_k, 0, 2);
      const std::vector<float> c = rows_of(GetParam(), a, b, 0, kRows, kWide);
      double apart = 0, largest = 0;
      for (int64_t i = 0; i < kRows; ++i)
        for (int64_t j = 0; j < kWide; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < kDepth; ++k) sum += double{a.upper(i, k)} * double{b.upper(j, k)};
          apart = std::max(apart, std::abs(sum - double{c[static_cast<size_t>(i * kWide + j)]}));
          largest = std::max(largest, std::abs(sum));
        }
      EXPECT_LE(apart, largest * std::ldexp(std::sqrt(double{kDepth}), -14)) << a_along_k << b_along_k;
    }
}

TEST_P(CudaProducts, OfARowDoNotDependOnOthers) {
  constexpr int64_t kRow = 75;
  MmaTestOperand a(MmaOperand::bf16, kRows, kDepth, true, 0, 1);
  const MmaTestOperand b(MmaOperand::bf16, kNarrow, kDepth, true, 0, 2);
  const std::vector<float> all = rows_of(GetParam(), a, b, 0, kRows, kNarrow);
  for (const int64_t count : {1, 7, 129}) {
    const std::vector<float> some = rows_of(GetParam(), a, b, kRows - count, count, kNarrow);
    EXPECT_EQ(0, std::memcmp(some.data(), all.data() + (kRows - count) * kNarrow, some.size() * 4)) << count;
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t k = 0; k < kDepth && i != kRow; ++k) a.set(i, k, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> beside = rows_of(GetParam(), a, b, 0, kRows, kNarrow);
  EXPECT_EQ(0, std::memcmp(beside.data() + kRow * kNarrow, all.data() + kRow * kNarrow, kNarrow * 4))
      << "beside NaN";
  EXPECT_TRUE(std::isnan(beside[(kRow + 1) * kNarrow]));
}

/// Logits that a product caps have the bits of rows that the kernel of `head` caps.
TEST_P(CudaProducts, CappedHaveTheBitsOfRowsThatAreCappedAfterwards) {
  const MmaTestOperand a(MmaOperand::bf16, kRows, kDepth, true, 0, 1),
      b(MmaOperand::bf16, kWide, kDepth, true, 0, 2);
  const OnGpu on_a(a.data(), a.bytes()), on_b(b.data(), b.bytes());
  for (const int64_t columns : {kWide, kNarrow})
    for (const int64_t rows : {kRows, int64_t{5}})
      for (const MmaTestCap& by : kMmaTestCaps) {
        std::vector<float> in_product(static_cast<size_t>(rows * columns)), afterwards = in_product;
        const auto bytes = static_cast<int64_t>(in_product.size() * sizeof(float));
        const OnGpu first(nullptr, bytes), second(nullptr, bytes);
        GpuMmaProduct p = product_of(a, b, rows, columns, kDepth);
        p.a = on_a.data(), p.b = on_b.data(), p.c = first.data();
        const LaunchOn on(&cuda_device());
        GetParam()(p);
        INGOT_GPU_CALL(launch_head_logits)
        ({}, {static_cast<float*>(first.data()), columns, columns, by.cap, by.scale}, rows);
        p.c = second.data(), p.cap = by.cap, p.scale = by.scale;
        GetParam()(p);
        cuda_device().download(afterwards.data(), first.data(), bytes);
        cuda_device().download(in_product.data(), second.data(), bytes);
        EXPECT_EQ(0, std::memcmp(in_product.data(), afterwards.data(), static_cast<size_t>(bytes)))
            << rows << "x" << columns << ", cap " << by.cap.cap << ", scale " << by.scale;
      }
}

/// What a product activates has the bits that the kernel of `activation` makes of what the product stored.
TEST_P(CudaProducts, ActivatedHaveTheBitsOfRowsThatAreActivatedAfterwards) {
  const MmaTestOperand a(MmaOperand::bf16, kRows, kDepth, true, 0, 1),
      b(MmaOperand::bf16, kWide, kDepth, true, 0, 2);
  const OnGpu on_a(a.data(), a.bytes()), on_b(b.data(), b.bytes());
  for (const int64_t columns : {kWide, kNarrow})
    for (const int64_t rows : {kRows, int64_t{5}})
      for (const ActivationFunction function : kProductActivations) {
        std::vector<bf16> in_product(static_cast<size_t>(rows * columns)), afterwards = in_product;
        const auto bytes = static_cast<int64_t>(in_product.size() * sizeof(bf16));
        const OnGpu c(nullptr, bytes), first(nullptr, bytes), second(nullptr, bytes);
        GpuMmaProduct p = product_of(a, b, rows, columns, kDepth);
        p.a = on_a.data(), p.b = on_b.data(), p.c = c.data(), p.c_type = DType::bf16;
        p.activated = static_cast<bf16*>(first.data()), p.activation = function;
        const LaunchOn on(&cuda_device());
        GetParam()(p);
        ActivationRows of_rows{};
        of_rows.function = function, of_rows.width = columns;
        of_rows.x = c.data(), of_rows.y = second.data(), of_rows.x_type = of_rows.y_type = DType::bf16;
        INGOT_GPU_CALL(launch_activation_forward)({}, of_rows, rows, nullptr);
        cuda_device().download(in_product.data(), first.data(), bytes);
        cuda_device().download(afterwards.data(), second.data(), bytes);
        EXPECT_EQ(0, std::memcmp(in_product.data(), afterwards.data(), static_cast<size_t>(bytes)))
            << rows << "x" << columns << ", function " << static_cast<int>(function);
      }
}

/// Where a faked driver has the emulator's chains they are the same.
TEST(CudaProductBits, SayWhichOfThemHaveTheSameBits) {
  const MmaTestOperand a(MmaOperand::bf16, kRows, kDepth, true, 0, 1),
      b(MmaOperand::bf16, kWide, kDepth, true, 0, 2);
  const auto wide = rows_of(multiply_on_tensor_cores, a, b, 0, kRows, kWide),
             narrow = rows_of(multiply_on_tensor_cores, a, b, 0, kRows, kNarrow),
             others = rows_of(by_instructions_of_every_gpu, a, b, 0, kRows, kWide);
  int64_t of_width = 0;
  for (int64_t i = 0; i < kRows; ++i)
    of_width += std::memcmp(&narrow[static_cast<size_t>(i * kNarrow)], &wide[static_cast<size_t>(i * kWide)],
                            kNarrow * 4) != 0
                    ? 1
                    : 0;
  const bool same = others == wide;
  std::printf("%s: rows that differ between tiles of 128 and of 256 columns: %lld; wgmma has %s bits\n",
              cuda_device().driver().name.c_str(), static_cast<long long>(of_width),
              same ? "mma.sync's" : "its own");
  if (!cuda_device().driver().is_faked()) return;
  EXPECT_EQ(of_width, 0);
  EXPECT_TRUE(same);
}

}  // namespace ingot::test::cuda_products_gpu_test
