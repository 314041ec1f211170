// NVIDIA's cuBLASLt as the device cuda uses it, on a library and a driver that are faked: what the messages
// say where it is absent, old, lacks a function or fails, which algorithms are taken, and that products are
// those of our operands. Of the machine's own library, where it has one: that it takes our types and sizes.
#include <gtest/gtest.h>

#include <memory>

#include "device/gemm/library_choice.h"
#include "support/fake_cuda.h"
#include "support/mma_operands.h"
#include "support/support.h"

namespace ingot::test::cublaslt_test {

using cublaslt::open_library;

constexpr int64_t kRows = 5, kColumns = 7, kDepth = 40;

class CublasLt : public ::testing::Test {
 protected:
  CublasLt() { fake_cublaslt() = {}; }
  ~CublasLt() override {
    EXPECT_EQ(fake_cublaslt().handles, 0);
    EXPECT_EQ(fake_cublaslt().objects, 0);
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
  std::unique_ptr<CudaDevice> gpu_ = make_cuda_device(cuda_driver::open_driver(kFakeCuda));
};

/// Memory of the GPU.
class OnGpu {
 public:
  OnGpu(CudaDevice& gpu, const void* from, int64_t bytes)
      : gpu_(gpu), bytes_(bytes), data_(gpu.allocate(bytes)) {
    gpu.upload(data_, from, bytes);
  }
  ~OnGpu() { gpu_.release(data_, bytes_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  void* data() const { return data_; }

 private:
  CudaDevice& gpu_;
  const int64_t bytes_;
  void* const data_;
};

TEST_F(CublasLt, SaysWhatIsMissing) {
  const auto refusal = [](const std::vector<std::string>& names) {
    return message_of([&] { open_library(names); });
  };
  EXPECT_EQ(refusal({kFakeCublasLt}), "");
  EXPECT_EQ(open_library({"libcublasLt-which-nobody-has.so", kFakeCublasLt}).path, kFakeCublasLt);
  const std::string absent = refusal({"libcublasLt-which-nobody-has.so", "nor-this.so"});
  EXPECT_TRUE(has(absent, "cuBLASLt: no library: libcublasLt-which-nobody-has.so: ") &&
              has(absent, "; nor-this.so: ") && has(absent, "INGOT_CUBLASLT_LIBRARY=PATH"))
      << absent;
  const std::string lacks = refusal({kOldCublasLt});
  EXPECT_TRUE(has(lacks, "libingot_old_cublaslt.so' lacks the function cublasLtMatmul")) << lacks;
  fake_cublaslt().version = 110803;
  EXPECT_TRUE(has(refusal({kFakeCublasLt}), "is version 11.8.3, and 12.0.0 or later is needed"))
      << refusal({kFakeCublasLt});
}

TEST_F(CublasLt, SaysWhatFails) {
  const cublaslt::Library library = open_library({kFakeCublasLt});
  EXPECT_EQ(library.version_text(), "13.1.0");
  fake_cublaslt().start = 1;
  const std::string start = message_of([&] { LibraryProducts(*gpu_, library); });
  EXPECT_TRUE(has(start, "cuBLASLt 13.1.0 ('") && has(start, "a handle failed: an error without a name (1)"))
      << start;
  fake_cublaslt().start = 0;
  cublaslt::Library real = library;
  real.is_faked = false;
  EXPECT_TRUE(has(message_of([&] { LibraryProducts(*gpu_, real); }), "is no library for a faked GPU"));
}

/// C in the layout of a training step's products, beside one chain over ascending k.
TEST_F(CublasLt, MultipliesOurOperands) {
  const LibraryProducts products(*gpu_, open_library({kFakeCublasLt}));
  for (const bool a_along_k : {true, false})
    for (const bool b_along_k : {true, false})
      for (const DType type : {DType::f32, DType::bf16})
        for (const bool accumulate : {false, true}) {
          const MmaTestOperand a(MmaOperand::bf16, kRows, kDepth, a_along_k, 3, 1),
              b(MmaOperand::bf16, kColumns, kDepth, b_along_k, 2, 2);
          MmaTestResult c(kRows * kColumns, type);
          const int64_t bytes = kRows * kColumns * size_of(type);
          const OnGpu on_a(*gpu_, a.data(), a.bytes()), on_b(*gpu_, b.data(), b.bytes()),
              on_c(*gpu_, c.data(), bytes);
          GpuMmaProduct p = product_of(a, b, kRows, kColumns, kDepth);
          p.a = on_a.data(), p.b = on_b.data(), p.c = on_c.data();
          p.c_type = type, p.accumulate = accumulate;
          const auto plans = products.plans(p);
          ASSERT_EQ(plans.size(), 2u) << "without those that split k, reduce, or are not supported";
          EXPECT_EQ(products.plans(p, 1).size(), 1u);
          (*plans[0])();
          gpu_->download(c.data(), on_c.data(), bytes);
          for (int64_t i = 0; i < kRows; ++i)
            for (int64_t j = 0; j < kColumns; ++j)
              EXPECT_EQ(c.at(i * kColumns + j),
                        c.of(chain(a, b, i, j, 0, kDepth) + (accumulate ? 0.5f : 0.0f)))
                  << i << " " << j << " " << a_along_k << b_along_k << accumulate;
        }
  EXPECT_EQ(fake_cublaslt().products, 16);
}

/// A row alone, by the algorithm of all.
TEST_F(CublasLt, MultipliesARowAlone) {
  const LibraryProducts products(*gpu_, open_library({kFakeCublasLt}));
  MmaTestOperand a(MmaOperand::bf16, kRows, kDepth, true, 0, 1);
  const MmaTestOperand b(MmaOperand::bf16, kColumns, kDepth, true, 0, 2);
  a.set(3, 0, 1e5f);  // so that the order of a sum shows
  std::vector<float> all(static_cast<size_t>(kRows * kColumns)), alone = all;
  const auto bytes = static_cast<int64_t>(all.size() * sizeof(float));
  const OnGpu on_a(*gpu_, a.data(), a.bytes()), on_b(*gpu_, b.data(), b.bytes()),
      on_c(*gpu_, all.data(), bytes);
  GpuMmaProduct p = product_of(a, b, kRows, kColumns, kDepth);
  p.a = on_a.data(), p.b = on_b.data(), p.c = on_c.data();
  const auto plans = products.plans(p);
  for (const bool keeps : {true, false}) {
    const auto& plan = *plans[keeps ? 0 : 1];
    EXPECT_TRUE(plan.runs());
    gpu_->download(all.data(), on_c.data(), bytes);
    (*products.row_of(plan, 3))();
    gpu_->download(alone.data(), on_c.data(), bytes);
    EXPECT_EQ(alone == all, keeps);
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      EXPECT_TRUE(i / kColumns == 3 || alone[static_cast<size_t>(i)] == all[static_cast<size_t>(i)]) << i;
  }
  fake_cublaslt().fewest_rows = 2;
  EXPECT_EQ(products.row_of(*plans[0], 3), nullptr);
}

/// In training: one algorithm for a form of products, whose rows keep their bits.
TEST_F(CublasLt, IsChosenForAFormOnce) {
  constexpr int64_t kMost = 20, kN = 8, kK = 16;
  LibraryChoice choice(*gpu_, open_library({kFakeCublasLt}));
  const MmaTestOperand a(MmaOperand::bf16, kMost, kK, true, 0, 1), b(MmaOperand::bf16, kN, kK, true, 0, 2);
  std::vector<float> c(kMost * kN);
  const auto bytes = static_cast<int64_t>(c.size() * sizeof(float));
  const OnGpu on_a(*gpu_, a.data(), a.bytes()), on_b(*gpu_, b.data(), b.bytes()),
      on_c(*gpu_, c.data(), bytes);
  const auto product = [&](int64_t rows, int64_t columns) {
    GpuMmaProduct p = product_of(a, b, rows, columns, kK);
    p.a = on_a.data(), p.b = on_b.data(), p.c = on_c.data(), p.c_row = kN;
    return p;
  };
  for (const int64_t rows : {kMost, int64_t{1}, int64_t{7}}) {
    const int before = fake_cublaslt().products;
    EXPECT_TRUE(choice.multiply(product(rows, kN)));
    EXPECT_EQ(fake_cublaslt().products - before, rows == kMost ? 6 : 1) << "it is tried once: all, four rows";
    gpu_->download(c.data(), on_c.data(), bytes);
    for (int64_t i = 0; i < kMost; ++i)
      for (int64_t j = 0; j < kN; ++j)
        EXPECT_EQ(c[static_cast<size_t>(i * kN + j)], chain(a, b, i, j, 0, kK));
  }
  fake_cublaslt().keeps_rows = false;
  EXPECT_FALSE(choice.multiply(product(3, 4))) << "a form whose rows have other bits among others";
  fake_cublaslt().keeps_rows = true;
  EXPECT_FALSE(choice.multiply(product(2, 4))) << "for every number of rows";
  fake_cublaslt().fewest_rows = 2;
  const std::string refused = message_of([&] { choice.multiply(product(1, kN)); });
  EXPECT_TRUE(has(refused, "cuBLASLt refuses 1 x 8 x 16 by the algorithm that it has for these")) << refused;
}

TEST_F(CublasLt, MultipliesWhereItIsAskedFor) {
  const LaunchOn on(gpu_.get());
  EXPECT_EQ(library_of_thread(), nullptr);
  EXPECT_EQ(library_that_multiplies(), "");
  set_products("cublas");
  EXPECT_TRUE(has(message_of([] { library_of_thread(); }), "INGOT_PRODUCTS is 'cublas', expected 'own' or"));
  set_products("own");
}

TEST_F(CublasLt, LeavesOutWhatSplitsK) {
  const LibraryProducts products(*gpu_, open_library({kFakeCublasLt}));
  GpuMmaProduct p;
  p.m = p.n = p.k = 16, p.a_row = p.b_k = p.c_row = 16;
  EXPECT_EQ(products.plans(p).size(), 2u);
  p.scale = 2;
  EXPECT_THROW(products.plans(p), InternalError) << "what it does not do";
  p.scale = 1;
  p.a = reinterpret_cast<const void*>(8);
  fake_cublaslt().alignment = 16;
  EXPECT_TRUE(products.plans(p).empty()) << "an operand at a multiple of 8 bytes";
  fake_cublaslt().alignment = 8;
  EXPECT_EQ(products.plans(p).size(), 2u);
  fake_cublaslt().only_splits = true;
  EXPECT_TRUE(products.plans(p).empty());
  fake_cublaslt().only_splits = false;
  const auto plans = products.plans(p);
  fake_cublaslt().refuses = 15;
  const std::string refused = message_of([&] { (*plans[0])(); });
  EXPECT_TRUE(has(refused, "a product failed: CUBLAS_STATUS_NOT_SUPPORTED (15)")) << refused;
  EXPECT_FALSE(plans[0]->runs());
}

/// It needs no GPU to say whether attributes have the sizes that it expects.
TEST(CublasLtOfThisMachine, TakesOurTypesAndSizes) {
  cublaslt::Library library;
  const std::string absent = message_of([&] { library = open_library(); });
  if (absent.find("no library") != absent.npos) GTEST_SKIP() << absent;
  ASSERT_EQ(absent, "");
  EXPECT_FALSE(library.is_faked);
  EXPECT_EQ(library.text_of(cublaslt::kNotSupported), "CUBLAS_STATUS_NOT_SUPPORTED (15)");
  cublaslt::Operation operation = nullptr;
  ASSERT_EQ(library.operation_create(&operation, cublaslt::kComputeFloat, cublaslt::kFloat), 0);
  for (const int attribute : {cublaslt::kTransposeA, cublaslt::kTransposeB}) {
    EXPECT_EQ(library.operation_set(operation, attribute, &cublaslt::kTransposed, 4), 0);
    EXPECT_NE(library.operation_set(operation, attribute, &cublaslt::kTransposed, 2), 0);
  }
  cublaslt::Layout layout = nullptr;
  EXPECT_EQ(library.layout_create(&layout, cublaslt::kBfloat16, 16, 24, 32), 0);
  cublaslt::Preference preference = nullptr;
  ASSERT_EQ(library.preference_create(&preference), 0);
  const uint64_t workspace = 1 << 20;
  EXPECT_EQ(library.preference_set(preference, cublaslt::kMostWorkspace, &workspace, 8), 0);
  EXPECT_NE(library.preference_set(preference, cublaslt::kMostWorkspace, &workspace, 4), 0);
  const uint32_t none = cublaslt::kNoReduction, alignment = 16;
  EXPECT_EQ(library.preference_set(preference, cublaslt::kReductionMask, &none, 4), 0);
  EXPECT_NE(library.preference_set(preference, cublaslt::kReductionMask, &none, 8), 0);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(library.preference_set(preference, cublaslt::kAlignmentA + i, &alignment, 4), 0);
  cublaslt::Algorithm algorithm{};
  int32_t splits = 7;
  uint32_t reduction = 7;
  size_t written = 0;
  EXPECT_EQ(library.algorithm_get(&algorithm, cublaslt::kSplitsOfK, &splits, 4, &written), 0);
  EXPECT_EQ(library.algorithm_get(&algorithm, cublaslt::kReduction, &reduction, 4, &written), 0);
  library.preference_destroy(preference);
  library.layout_destroy(layout);
  library.operation_destroy(operation);
}

}  // namespace ingot::test::cublaslt_test
