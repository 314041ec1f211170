// Products of bf16 by Hopper's instructions, emulated: each output is one chain of fused multiply-adds, bit
// for bit as by those of every GPU, for every layout in memory, over several tiles and stages, in groups,
// whatever stands beside it. And what the emulator knows of Hopper: mistakes are found and named.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "device/gemm/gpu_tensor_cores.h"
#define INGOT_ISA emulated
#define INGOT_ISA_gpu 1
#define INGOT_ISA_emulated 1
#include "device/gpu/hopper.h"
#include "support/activated_products.h"
#include "support/capped_products.h"

namespace ingot::test::wgmma_emulated_test {

class WgmmaProducts : public ::testing::TestWithParam<uint64_t> {
 protected:
  WgmmaProducts() { set_emulation({.on = true, .seed = GetParam(), .mma = true, .wgmma = true}); }
  ~WgmmaProducts() override { set_emulation({}); }
};
INSTANTIATE_TEST_SUITE_P(Seeds, WgmmaProducts, ::testing::Values(1, 2, 3));

/// Launches of a kernel since this was made.
class Launches {
 public:
  explicit Launches(std::string kernel) : kernel_(std::move(kernel)), before_(now()) {}
  int64_t count() const { return now() - before_; }

 private:
  int64_t now() const { return emulated_launches()[kernel_]; }
  std::string kernel_;
  int64_t before_;
};

struct Layout {
  bool a_along_k, b_along_k;
};
constexpr Layout kForward{true, true}, kInputGradient{true, false}, kWeightGradient{false, false};

TEST_P(WgmmaProducts, AreOneChainForEachOutput) {
  struct Size {
    int64_t m, n, k;
  };
  const Launches launches("wgmma_product"), few("few_rows_wgmma_product");
  int64_t products = 0;
  for (const Size& s : {Size{1, 64, 8},
                        {3, 72, 16},
                        {136, 72, 72},
                        {264, 136, 200},
                        {8, 1032, 64},
                        {24, 1024, 600},
                        {1160, 136, 16}})
    for (const Layout& layout : {kForward, kInputGradient, kWeightGradient}) {
      if (!layout.a_along_k && s.m % 8 != 0) continue;
      const bool is_rounded = s.m == 136, gives_bf16 = layout.a_along_k && layout.b_along_k;
      const MmaOperand is = is_rounded ? MmaOperand::rounded : MmaOperand::bf16;
      const MmaTestOperand a(is, s.m, s.k, layout.a_along_k, 0, 1), b(is, s.n, s.k, layout.b_along_k, 8, 2);
      std::vector<float> bias(static_cast<size_t>(s.n));
      for (size_t j = 0; j < bias.size(); ++j) bias[j] = 0.01f * static_cast<float>(j);
      for (const bool accumulate : {false, true}) {
        MmaTestResult c(s.m * s.n, gives_bf16 ? DType::bf16 : DType::f32);
        GpuMmaProduct p = product_of(a, b, s.m, s.n, s.k);
        p.c = c.data(), p.c_type = gives_bf16 ? DType::bf16 : DType::f32, p.accumulate = accumulate;
        if (gives_bf16) p.bias = bias.data();
        multiply_on_tensor_cores(p);
        ++products;
        int64_t wrong = 0;
        for (int64_t i = 0; i < s.m; ++i)
          for (int64_t j = 0; j < s.n; ++j) {
            float sum = chain(a, b, i, j, 0, s.k);
            if (accumulate) sum = 0.5f + sum;
            if (gives_bf16) sum += bias[static_cast<size_t>(j)];
            wrong += c.at(i * s.n + j) != c.of(sum) ? 1 : 0;
          }
        EXPECT_EQ(wrong, 0) << fmt::format("{}x{}x{}, along k: {} and {}, accumulate {}", s.m, s.n, s.k,
                                           layout.a_along_k, layout.b_along_k, accumulate);
        EXPECT_TRUE(c.ends_where_it_should());
      }
    }
  EXPECT_EQ(launches.count() + few.count(), products);
  EXPECT_EQ(few.count(), 12) << "of few rows, along k";
}

TEST_P(WgmmaProducts, CappedHaveTheBitsOfRowsThatAreCappedAfterwards) {
  struct Size {
    int64_t m, n, k, beyond;
  };
  const Launches launches("wgmma_product"), few("few_rows_wgmma_product");
  for (const Size& s : {Size{1, 64, 8, 0},
                        {16, 200, 72, 3},
                        {17, 72, 16, 0},
                        {136, 136, 136, 1},
                        {3, 1032, 64, 0},
                        {136, 1032, 72, 16}})
    for (const MmaTestCap& by : kMmaTestCaps) {
      const MmaTestOperand a(MmaOperand::bf16, s.m, s.k, true, 0, 1),
          b(s.m == 17 ? MmaOperand::rounded : MmaOperand::bf16, s.n, s.k, true, 8, 2);
      EXPECT_TRUE(capped_as_rows_are(multiply_on_tensor_cores, a, b, s.m, s.n, s.k, s.beyond, by))
          << fmt::format("{}x{}x{}, cap {}, scale {}", s.m, s.n, s.k, by.cap.cap, by.scale);
    }
  EXPECT_EQ(launches.count(), 18) << "three sizes, three caps, capped and not";
  EXPECT_EQ(few.count(), 18);
}

TEST_P(WgmmaProducts, ActivatedHaveTheBitsOfRowsThatAreActivatedAfterwards) {
  struct Size {
    int64_t m, n, k, beyond;
  };
  const Launches launches("wgmma_product"), few("few_rows_wgmma_product");
  for (const Size& s : {Size{1, 64, 8, 0}, {16, 200, 72, 3}, {17, 72, 16, 0}, {136, 1032, 72, 16}})
    for (const ActivationFunction function : kProductActivations) {
      const MmaTestOperand a(MmaOperand::bf16, s.m, s.k, true, 0, 1),
          b(s.m == 17 ? MmaOperand::rounded : MmaOperand::bf16, s.n, s.k, true, 8, 2);
      EXPECT_TRUE(activated_as_rows_are(multiply_on_tensor_cores, a, b, s.m, s.n, s.k, s.beyond, function))
          << fmt::format("{}x{}x{}, function {}", s.m, s.n, s.k, static_cast<int>(function));
    }
  EXPECT_EQ(launches.count(), 16) << "two sizes, four functions, activated and not";
  EXPECT_EQ(few.count(), 16);
}

TEST_P(WgmmaProducts, OfBf16AloneAreActivated) {
  const MmaTestOperand a(MmaOperand::bf16, 64, 64, true, 0, 1), b(MmaOperand::bf16, 64, 64, true, 0, 2);
  std::vector<float> c(64 * 64);
  std::vector<bf16> activated(c.size());
  GpuMmaProduct p = product_of(a, b, 64, 64, 64);
  p.c = c.data(), p.activated = activated.data();
  EXPECT_THROW(multiply_on_tensor_cores(p), InternalError) << "f32";
  p.c_type = DType::bf16;
  EXPECT_NO_THROW(multiply_on_tensor_cores(p));
  EXPECT_THROW(multiply_rows_on_tensor_cores({p, kMmaOffsets.data(), 1}), InternalError);
  p.activation = ActivationFunction::soft_cap;
  EXPECT_THROW(multiply_on_tensor_cores(p), InternalError);
}

TEST_P(WgmmaProducts, ThatAreCappedAreThoseOfLogitsAlone) {
  const MmaTestOperand a(MmaOperand::bf16, 64, 64, true, 0, 1), b(MmaOperand::bf16, 64, 64, true, 0, 2);
  std::vector<float> c(64 * 64);
  GpuMmaProduct p = product_of(a, b, 64, 64, 64);
  p.c = c.data(), p.scale = 2;
  EXPECT_NO_THROW(multiply_on_tensor_cores(p));
  EXPECT_THROW(multiply_rows_on_tensor_cores({p, kMmaOffsets.data(), 1}), InternalError);
  EXPECT_THROW(multiply_depth_on_tensor_cores({p, kMmaOffsets.data(), 1}), InternalError);
  EXPECT_THROW(multiply_batch_on_tensor_cores({p, 1}), InternalError);
  EXPECT_THROW(multiply_symmetric_on_tensor_cores({p, 1}), InternalError);
  p.a_row = 1, p.a_k = 64;
  EXPECT_THROW(multiply_on_tensor_cores(p), InternalError) << "along rows";
  p.a_row = 64, p.a_k = 1, p.a_is = MmaOperand::split;
  EXPECT_THROW(multiply_on_tensor_cores(p), InternalError) << "of f32";
}

TEST_P(WgmmaProducts, OfGroupsOfRowsAreOneChainForEachOutput) {
  constexpr int64_t kN = 136, kK = 72, kGroups = 5;
  const Launches launches("grouped_wgmma_rows");
  for (const MmaOperand is : {MmaOperand::bf16, MmaOperand::rounded})
    for (const bool along_k : {false, true}) {
      const MmaTestOperand a(MmaOperand::bf16, kMmaGroupedRows, kK, true, 0, 1),
          b(is, along_k ? kGroups * kN : kN, along_k ? kK : kGroups * kK, along_k, 0, 2);
      MmaTestResult c(kMmaOffsets.back() * kN, DType::bf16);
      GpuGroupedMmaProduct g{product_of(a, b, kMmaGroupedRows, kN, kK), kMmaOffsets.data(), kGroups, kN * kK};
      g.product.c = c.data(), g.product.c_type = DType::bf16;
      multiply_rows_on_tensor_cores(g);
      int64_t wrong = 0;
      for (size_t e = 0; e < kGroups; ++e)
        for (int64_t i = kMmaOffsets[e]; i < kMmaOffsets[e + 1]; ++i)
          for (int64_t j = 0; j < kN; ++j) {
            const auto group = static_cast<int64_t>(e);
            float sum = 0;
            for (int64_t k = 0; k < kK; ++k)
              sum = std::fma(a.upper(i, k), along_k ? b.upper(group * kN + j, k) : b.upper(j, group * kK + k),
                             sum);
            wrong += c.at(i * kN + j) != rounded(sum) ? 1 : 0;
          }
      EXPECT_EQ(wrong, 0) << static_cast<int>(is) << along_k;
      EXPECT_TRUE(c.ends_where_it_should()) << "rows behind the last group's";
    }
  EXPECT_EQ(launches.count(), 4);
}

TEST_P(WgmmaProducts, OfGroupsAlongKCountItFromTheirFirstRow) {
  constexpr int64_t kM = 136, kN = 72, kGroups = 5;
  const Launches launches("grouped_wgmma_depth");
  for (const bool accumulate : {false, true}) {
    const MmaTestOperand a(MmaOperand::bf16, kM, kMmaGroupedRows, false, 0, 1),
        b(MmaOperand::bf16, kN, kMmaGroupedRows, false, 0, 2);
    MmaTestResult c(kGroups * kM * kN, DType::f32);
    GpuGroupedMmaProduct g{product_of(a, b, kM, kN, kMmaGroupedRows), kMmaOffsets.data(), kGroups, kM * kN};
    g.product.c = c.data(), g.product.accumulate = accumulate;
    multiply_depth_on_tensor_cores(g);
    int64_t wrong = 0;
    for (size_t e = 0; e < kGroups; ++e)
      for (int64_t i = 0; i < kM; ++i)
        for (int64_t j = 0; j < kN; ++j) {
          const float sum = chain(a, b, i, j, kMmaOffsets[e], kMmaOffsets[e + 1]);
          const float expected = accumulate ? 0.5f + sum : sum;
          wrong += c.at((static_cast<int64_t>(e) * kM + i) * kN + j) != expected ? 1 : 0;
        }
    EXPECT_EQ(wrong, 0) << accumulate;
    EXPECT_TRUE(c.ends_where_it_should());
  }
  EXPECT_EQ(launches.count(), 2);
}

TEST_P(WgmmaProducts, DoNotSeeWhatOtherGroupsRowsHold) {
  constexpr int64_t kM = 64, kN = 64;
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> offsets = {0, 5, 70};
  MmaTestOperand a(MmaOperand::bf16, kM, 70, false, 0, 1), b(MmaOperand::bf16, kN, 70, false, 0, 2);
  for (int64_t k = 5; k < 70; ++k)
    for (int64_t i = 0; i < kM; ++i) a.set(i, k, kNaN), b.set(i, k, kNaN);
  MmaTestResult c(2 * kM * kN, DType::f32);
  GpuGroupedMmaProduct g{product_of(a, b, kM, kN, 70), offsets.data(), 2, kM * kN};
  g.product.c = c.data();
  multiply_depth_on_tensor_cores(g);
  for (int64_t i = 0; i < kM * kN; ++i)
    ASSERT_EQ(c.at(i), chain(a, b, i / kN, i % kN, 0, 5)) << "of the first group";
  EXPECT_TRUE(std::isnan(c.at(kM * kN)));
}

std::vector<float> rows_of(const MmaTestOperand& a, const MmaTestOperand& b, int64_t begin, int64_t count,
                           int64_t n, int64_t k) {
  return mma_rows_of([](const GpuMmaProduct& p) { multiply_on_tensor_cores(p); }, a, b, begin, count, n, k);
}

TEST_P(WgmmaProducts, OfARowDoNotDependOnOthers) {
  constexpr int64_t kM = 150, kN = 72, kK = 136;
  MmaTestOperand a(MmaOperand::bf16, kM, kK, true, 0, 1);
  const MmaTestOperand b(MmaOperand::bf16, kN, kK, true, 0, 2);
  const Launches launches("wgmma_product"), few("few_rows_wgmma_product");
  const std::vector<float> all = rows_of(a, b, 0, kM, kN, kK);
  for (const int64_t count : {1, 7, 16, 17, 64, 129}) {
    const std::vector<float> some = rows_of(a, b, kM - count, count, kN, kK);
    EXPECT_EQ(0, std::memcmp(some.data(), all.data() + (kM - count) * kN, some.size() * sizeof(float)));
  }
  for (int64_t i = 0; i < kM; ++i)
    for (int64_t k = 0; k < kK && i != 75; ++k) a.set(i, k, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> beside = rows_of(a, b, 0, kM, kN, kK);
  EXPECT_EQ(0, std::memcmp(beside.data() + 75 * kN, all.data() + 75 * kN, kN * sizeof(float)));
  EXPECT_TRUE(std::isnan(beside[74 * kN]) && std::isnan(beside[76 * kN]));
  EXPECT_EQ(launches.count(), 5);
  EXPECT_EQ(few.count(), 3);
}

TEST_P(WgmmaProducts, OfWhatTheyDoNotTakeAreThoseOfEveryGpu) {
  struct Case {
    const char* what;
    int64_t n, k;
    MmaOperand a_is;
    Layout layout;
  };
  for (const Case& c : {Case{"rows that are not 16 bytes apart", 64, 60, MmaOperand::bf16, kForward},
                        {"columns that are not", 66, 64, MmaOperand::bf16, kInputGradient},
                        {"few columns", 56, 64, MmaOperand::bf16, kForward},
                        {"f32 in two parts", 64, 64, MmaOperand::split, kForward},
                        {"A along rows, B along k", 64, 64, MmaOperand::bf16, {false, true}}}) {
    const Launches wgmma("wgmma_product"), few("few_rows_wgmma_product"), mma("mma_product");
    const MmaTestOperand a(c.a_is, 16, c.k, c.layout.a_along_k, 0, 1),
        b(MmaOperand::bf16, c.n, c.k, c.layout.b_along_k, 0, 2);
    const std::vector<float> result = rows_of(a, b, 0, 16, c.n, c.k);
    EXPECT_EQ(result.back(), chain(a, b, 15, c.n - 1, 0, c.k)) << c.what;
    EXPECT_EQ(wgmma.count() + few.count(), 0) << c.what;
    EXPECT_EQ(mma.count(), 1) << c.what;
  }
}

// What the emulator finds.

using namespace emulated;

struct Memory {
  alignas(1024) uint16_t tile[kTileColumns * kTileColumns];
  Barrier barrier;
};

/// What the launch of one warpgroup threw; "" for nothing.
template <class... Parameters, class... Arguments>
std::string error_of(void (*kernel)(Parameters...), const Arguments&... arguments) {
  try {
    launch("planted", kernel, {1, kWarpgroupThreads}, {}, arguments...);
  } catch (const InternalError& e) {
    return e.what();
  }
  return {};
}

enum class Mistake {
  none,
  other_bytes,
  other_parity,
  not_published,
  not_begun,
  arrives_twice,
  does_not_wait,
  between_patterns,
  beyond_memory
};

template <Mistake kMistake>
void copies(const TensorMap map, float* first) {
  INGOT_DYNAMIC_SHARED(Memory, memory);
  if (thread_index() == 0 && kMistake != Mistake::not_begun) {
    begin_barrier(memory.barrier, 1);
    if (kMistake != Mistake::not_published) publish_barriers();
  }
  sync_threads();
  if (thread_index() == 0) {
    expect_bytes(memory.barrier, sizeof(memory.tile) + (kMistake == Mistake::other_bytes ? 16 : 0));
    uint16_t* const to = memory.tile + (kMistake == Mistake::between_patterns ? 64
                                        : kMistake == Mistake::beyond_memory  ? 4096
                                                                              : 0);
    load_tile(to, map, memory.barrier, 0, 0, 0);
    if (kMistake == Mistake::arrives_twice) arrive(memory.barrier), arrive(memory.barrier);
  }
  if (kMistake == Mistake::does_not_wait) return;
  await_phase(memory.barrier, kMistake == Mistake::other_parity ? 1 : 0);
  first[thread_index()] = widened(bf16{memory.tile[0]});
}

TEST(EmulatedHopper, MistakesOfCopiesAreFound) {
  std::vector<bf16> matrix(64 * 64, to_bf16(2.0f));
  const TensorMap map = tensor_map({.first = matrix.data(),
                                    .columns = 64,
                                    .rows = 64,
                                    .row_stride = 64,
                                    .matrix_stride = 4096,
                                    .tile_rows = 64});
  std::vector<float> first(kWarpgroupThreads);
  EXPECT_EQ(error_of(copies<Mistake::none>, map, first.data()), "");
  EXPECT_EQ(first, std::vector<float>(kWarpgroupThreads, 2.0f));
  const auto expect = [&](auto kernel, const char* what) {
    const std::string error = error_of(kernel, map, first.data());
    EXPECT_NE(error.find(what), std::string::npos) << what << ": " << error;
  };
  expect(copies<Mistake::other_bytes>, "deadlock: 128 threads wait for an event at");
  expect(copies<Mistake::not_published>, "was begun and not published");
  expect(copies<Mistake::not_begun>, "a barrier that no thread has begun");
  expect(copies<Mistake::arrives_twice>, "more threads arrive than the barrier waits for");
  expect(copies<Mistake::between_patterns>, "does not lie at a multiple of 1,024 bytes");
  expect(copies<Mistake::beyond_memory>, "beyond the end of shared memory");
  // Found in some orders: a copy that is there in time hides the first, and what waits for the wrong phase
  // reads too early or waits for ever.
  bool ends_early = false, reads_early = false, waits = false;
  for (int i = 0; i < 20; ++i) {
    ends_early |=
        error_of(copies<Mistake::does_not_wait>, map, first.data()).find("ends before") != std::string::npos;
    waits |= error_of(copies<Mistake::other_parity>, map, first.data()).find("deadlock") != std::string::npos;
    reads_early |= std::any_of(first.begin(), first.end(), [](float x) { return std::isnan(x); });
  }
  EXPECT_TRUE(ends_early && reads_early && waits) << ends_early << reads_early << waits;
}

TEST(EmulatedHopper, MatricesThatAreNotItsAreRefused) {
  const std::vector<bf16> x(64);
  TiledMatrices m{
      .first = x.data(), .columns = 8, .rows = 8, .row_stride = 8, .matrix_stride = 64, .tile_rows = 8};
  EXPECT_NO_THROW(tensor_map(m));
  m.row_stride = 9;
  EXPECT_THROW(tensor_map(m), InternalError);
  m.row_stride = 8, m.first = x.data() + 1;
  EXPECT_THROW(tensor_map(m), InternalError);
}

enum class ProductMistake { none, not_begun, different, not_swizzled, reads_early, stores_unpublished };

template <ProductMistake kMistake>
void multiplies(float* to) {
  INGOT_DYNAMIC_SHARED(Memory, memory);
  constexpr int kChunks = sizeof(memory.tile) / 16;
  if (kMistake == ProductMistake::stores_unpublished) clear_16_bytes(memory.tile);
  for (int i = static_cast<int>(thread_index()); i < kChunks; i += kWarpgroupThreads)
    for (int j = 0; j < 8; ++j) memory.tile[i * 8 + j] = 0x3f80;  // 1
  meet_first<kWarpgroupThreads>();
  float sums[64];
  for (float& sum : sums) sum = 1.0f;
  if (kMistake != ProductMistake::not_begun) begin_products(sums);
  WarpgroupOperand a = operand_along_k(memory.tile), b = operand_along_rows(memory.tile, 0);
  if (kMistake == ProductMistake::different && thread_index() == 5) a = behind(a, 32);
  if (kMistake == ProductMistake::not_swizzled) a.bits ^= uint64_t{1} << 62;
  add_product<0, 1>(sums, a, b);
  commit_products();
  if (kMistake == ProductMistake::reads_early) to[thread_index()] = sums[0];
  await_products<0>(sums);
  if (kMistake != ProductMistake::reads_early) to[thread_index()] = sums[63];
}

TEST(EmulatedHopper, MistakesOfProductsAreFound) {
  std::vector<float> sums(kWarpgroupThreads);
  EXPECT_EQ(error_of(multiplies<ProductMistake::none>, sums.data()), "");
  EXPECT_EQ(sums, std::vector<float>(kWarpgroupThreads, 17.0f));
  const auto expect = [&](auto kernel, const char* what) {
    const std::string error = error_of(kernel, sums.data());
    EXPECT_NE(error.find(what), std::string::npos) << what << ": " << error;
  };
  expect(multiplies<ProductMistake::not_begun>, "before begin_products()");
  expect(multiplies<ProductMistake::different>, "ask for different products");
  expect(multiplies<ProductMistake::not_swizzled>, "not swizzled by 128 bytes");
  expect(multiplies<ProductMistake::stores_unpublished>, "stores that were not published");
  EXPECT_EQ(error_of(multiplies<ProductMistake::reads_early>, sums.data()), "");
  EXPECT_NE(sums, std::vector<float>(kWarpgroupThreads, 17.0f));
}

}  // namespace ingot::test::wgmma_emulated_test
