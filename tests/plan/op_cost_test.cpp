// Products that no point of a cluster file knows, beside a published table of them.
#include "plan/op_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ingot::test::op_cost_test {

struct Printed {
  double m, n, k, tflops;
};

/// FP8 products on H800, whose memory and dense peak are H100's: README of DeepGEMM, February 2025, "Normal
/// GEMMs for dense models".
constexpr Printed kDeepGemm[] = {
    {64, 2112, 7168, 206},    {64, 24576, 1536, 289},   {64, 32768, 512, 219},   {64, 7168, 16384, 336},
    {64, 4096, 7168, 287},    {64, 7168, 2048, 295},    {128, 2112, 7168, 352},  {128, 24576, 1536, 535},
    {128, 32768, 512, 358},   {128, 7168, 16384, 645},  {128, 4096, 7168, 533},  {128, 7168, 2048, 510},
    {4096, 2112, 7168, 1058}, {4096, 24576, 1536, 990}, {4096, 32768, 512, 590}, {4096, 7168, 16384, 1358},
    {4096, 4096, 7168, 1304}, {4096, 7168, 2048, 1025},
};

/// The root of the mean square by which planned times are off, of logarithms, with the share that fits best.
double error_of_plans(double exposed_bytes) {
  Cluster h800;
  h800.device.bandwidth = 3350;
  h800.device.rates.f8 = 1980;
  h800.device.exposed_bytes = exposed_bytes;
  double best = 1e300;
  for (double share = 0.3; share < 1; share += 0.005) {
    h800.device.product_share.f8 = share;
    const OpCostModel costs(h800, "f8");
    double squares = 0;
    for (const Printed& p : kDeepGemm) {
      PassStep s;
      s.what = TimeOf::products, s.op = "linear";
      s.sizes = {static_cast<int64_t>(p.m), static_cast<int64_t>(p.n), static_cast<int64_t>(p.k), 0, 0};
      s.flops = 2 * p.m * p.n * p.k;
      s.bytes = p.m * p.k + p.n * p.k + 2 * p.m * p.n;  // two operands of one byte, a result of two
      const double off = std::log(costs.time_of(s).seconds * 1e12 * p.tflops / s.flops);
      squares += off * off;
    }
    best = std::min(best, std::sqrt(squares / std::size(kDeepGemm)));
  }
  return best;
}

TEST(OpCost, BytesOfProductsAreNotHidden) {
  EXPECT_LT(error_of_plans(1), 0.18);
  EXPECT_GT(error_of_plans(0), 2 * error_of_plans(1)) << "a product as long as the longer of the two";
}

}  // namespace ingot::test::op_cost_test
