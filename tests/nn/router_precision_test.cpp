// moe.router_precision: in a bf16 run the router computes what an fp32 run computes from the same rounded
// input; by key its operands are bf16.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "models/presets.h"
#include "nn/moe/router.h"
#include "ops/reference.h"
#include "tape/backward.h"

namespace ingot::test::router_precision_test {

constexpr int64_t kRows = 37;

struct RouterPass {
  reference::Array logits, d_weights;
};

/// A router of `model` on rows that bf16 can hold: its logits, and the gradients of its parameters.
RouterPass pass(const ModelConfig& model, const Precision& precision, const Placement& placement = {}) {
  ParameterTable table;
  const Router router(table, "router", model, true);
  WeightSet weights(table, placement, precision);
  weights.initialize(3);
  GradientBuffer gradients(table, placement, DType::f32);
  gradients.begin_step();
  HeapArena arena;
  Tape tape(arena, {.sink = &gradients});
  Context c{tape, weights};
  const Random random(7, RandomPurpose::test);
  reference::Array values;
  for (int64_t i = 0; i < kRows * model.width; ++i)
    values.push_back(to_float(to_bf16(static_cast<float>(random.normal(static_cast<uint64_t>(i))))));
  Buffer memory(kRows * model.width * 4);
  const Tensor h(memory.data(), {kRows, model.width}, precision.compute);
  reference::store(h, values);
  const Value logits = router.forward(c, tape.leaf(h), {}, 0).logits_TE;
  RouterPass result{reference::load(logits.tensor()), {}};
  reference::Array cotangents;
  for (int64_t i = 0; i < logits.shape().numel(); ++i)
    cotangents.push_back(random.normal(static_cast<uint64_t>(i) + 1000000));
  Buffer seed(logits.meta().bytes());
  const Tensor d(seed.data(), logits.shape(), logits.meta().dtype);
  reference::store(d, cotangents);
  tape.seed(logits, d);
  Backward(tape).run();
  gradients.finish_step();
  for (int i = 0; i < table.size(); ++i)
    for (const double g : reference::load(gradients.gradient(i))) result.d_weights.push_back(g);
  return result;
}

TEST(RouterPrecision, IsThatOfAnFp32RunByDefault) {
  for (const char* preset : {"moe-small", "zaya-tiny"}) {
    ModelConfig model = model_preset(preset);
    model.vocab = 61;
    const RouterPass f32 = pass(model, Precision::f32()), mixed = pass(model, Precision::bf16());
    EXPECT_EQ(mixed.logits, f32.logits) << preset;
    EXPECT_EQ(mixed.d_weights, f32.d_weights) << preset;
    const Placement sharded{.sharding = {.level = ShardLevel::optimizer}};  // weights are sent as copies
    EXPECT_EQ(pass(model, Precision::bf16(), sharded).logits, f32.logits) << preset;
    model.moe.router_precision = RouterPrecision::bf16;
    EXPECT_EQ(pass(model, Precision::f32()).logits, f32.logits) << preset;
    EXPECT_NE(pass(model, Precision::bf16()).logits, f32.logits) << preset;
  }
}

TEST(RouterPrecision, RoutersAreSentInBucketsOfTheirOwn) {
  ParameterTable table;
  table.add({"matrix", {8, 8}, ParamRole::matrix, Init::constant(1)});
  const int router = table.add({"router", {8, 8}, ParamRole::router, Init::constant(1)});
  ParameterSpec wide{"wide", {8, 8}, ParamRole::router, Init::constant(1)};
  wide.full_precision = true;
  const int full = table.add(wide);
  const Placement sharded{.sharding = {.level = ShardLevel::optimizer}};
  WeightSet weights(table, sharded, Precision::bf16());
  weights.initialize(1);
  const std::vector<int>& bucket_of = weights.layout().bucket_of;
  EXPECT_EQ(bucket_of[0], bucket_of[static_cast<size_t>(router)]);
  EXPECT_NE(bucket_of[0], bucket_of[static_cast<size_t>(full)]);
  EXPECT_EQ(weights.gather_tensor(bucket_of[0]).dtype(), DType::bf16);
  EXPECT_EQ(weights.gather_tensor(bucket_of[static_cast<size_t>(full)]).dtype(), DType::f32);
  EXPECT_EQ(weights.compute(full).dtype(), DType::f32);
}

}  // namespace ingot::test::router_precision_test
