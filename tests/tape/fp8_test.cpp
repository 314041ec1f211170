// Values that wait for backward in FP8: forward has its bits, backward reads the rounded values and nothing
// else changes, and between the two only the codes are in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/threads.h"
#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/collective/collective.h"
#include "ops/linear/linear.h"
#include "ops/quantize/quantize.h"
#include "ops/registry.h"
#include "support/tape_pass.h"
#include "tape/backward.h"
#include "train/memory_policy.h"

namespace ingot::test::fp8_test {

constexpr int64_t kRows = 6, kWidth = 200, kCodes = (kRows * (kWidth + 2) + 63) / 64 * 64,
                  kBytes = kRows * kWidth * 4;

std::vector<float> numbers(int64_t n, double step) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1)));
  return x;
}
Tensor matrix(const std::vector<float>& values, int64_t rows) {
  return Tensor::of(values.data(), {rows, static_cast<int64_t>(values.size()) / rows});
}

/// What dequantize makes of what quantize makes of it.
std::vector<float> rounded(const Tensor& x) {
  std::vector<uint8_t> q(static_cast<size_t>(x.dim(0) * quantized_width(x.dim(1))));
  std::vector<float> y(static_cast<size_t>(x.numel()));
  const Tensor codes(q.data(), Shape{x.dim(0), quantized_width(x.dim(1))}, DType::u8),
      back = matrix(y, x.dim(0));
  const DequantizeAttr attr;
  quantize_op().kernels.back().forward({nullptr, {&x, 1}, {&codes, 1}, {}, {}});
  dequantize_op().kernels.back().forward({&attr, {&codes, 1}, {&back, 1}, {}, {}});
  return y;
}
std::string bytes_of(const Tensor& t) {
  return {static_cast<const char*>(t.data), static_cast<size_t>(t.bytes())};
}

const std::vector<float> kX = numbers(kRows * kWidth, 0.1), kW = numbers(5 * kWidth, 0.7),
                         kOtherW = numbers(5 * kWidth, 1.3), kD = numbers(kRows * 5, 0.9);

/// The gradients of weights of products whose input is `input` itself.
std::string gradient_of_product(const Tensor& input, const std::vector<float>& weight) {
  HeapArena arena;
  Tape tape(arena, {});
  const Value w = tape.leaf(matrix(weight, 5), true);
  const Value y = linear(tape, DType::f32, tape.leaf(input), w);
  tape.seed(y, matrix(kD, kRows));
  Backward(tape).run();
  return bytes_of(tape.gradient(w));
}

Value gelu(Tape& tape, const Value& x) {
  return activation(tape, {ActivationKind::gelu, DType::f32}, x);
}

TEST(Fp8, BackwardReadsTheRoundedValueAndTheCodesAloneWaitForIt) {
  const NamedPolicy policy({}, {}, {"activation"});
  std::string sums[2], d_x[2];
  std::vector<float> a_values;
  for (const bool in_fp8 : {false, true}) {
    HeapArena arena;
    Tape tape(arena, {.policy = in_fp8 ? &policy : nullptr});
    const Value x = tape.leaf(matrix(kX, kRows), true), w = tape.leaf(matrix(kW, 5), true),
                other = tape.leaf(matrix(kOtherW, 5), true);
    Value a = gelu(tape, x);
    a_values.assign(a.tensor().as<float>(), a.tensor().as<float>() + a.tensor().numel());
    const Value y = linear(tape, DType::f32, a, w), z = linear(tape, DType::f32, a, other);
    const int64_t whole = arena.live_bytes();
    a = {};
    EXPECT_EQ(whole - arena.live_bytes(), in_fp8 ? (kBytes + 63) / 64 * 64 - kCodes : 0);
    sums[in_fp8] = bytes_of(y.tensor()) + bytes_of(z.tensor());
    tape.seed(y, matrix(kD, kRows)), tape.seed(z, matrix(kD, kRows));
    Backward(tape).run();
    d_x[in_fp8] = bytes_of(tape.gradient(x));
    const std::vector<float> read = in_fp8 ? rounded(matrix(a_values, kRows)) : a_values;
    EXPECT_EQ(bytes_of(tape.gradient(w)), gradient_of_product(matrix(read, kRows), kW));
    EXPECT_EQ(bytes_of(tape.gradient(other)), gradient_of_product(matrix(read, kRows), kOtherW));
  }
  EXPECT_NE(rounded(matrix(a_values, kRows)), a_values);
  EXPECT_EQ(sums[0], sums[1]) << "forward is as it was";
  EXPECT_EQ(d_x[0], d_x[1]) << "a gradient that reads the weights alone, too";
}

TEST(Fp8, WhatIsComputedAgainFromARoundedValueIsThatOfTheRoundedValue) {
  const NamedPolicy policy({"activation"}, {}, {"add"});
  HeapArena arena;
  Tape tape(arena, {.policy = &policy});
  const Value x = tape.leaf(matrix(kX, kRows), true), w = tape.leaf(matrix(kW, 5), true);
  Value sum = add(tape, DType::f32, x, x);
  const std::vector<float> read = rounded(sum.tensor());
  Value a = gelu(tape, sum);
  const Value y = linear(tape, DType::f32, a, w);
  const int64_t whole = arena.live_bytes();
  sum = {}, a = {};
  EXPECT_EQ(whole - arena.live_bytes(), 2 * ((kBytes + 63) / 64 * 64) - kCodes);
  tape.seed(y, matrix(kD, kRows));
  Backward(tape).run();
  Tape alone(arena, {.record = false});
  const Value expected = gelu(alone, alone.leaf(matrix(read, kRows)));
  EXPECT_EQ(bytes_of(tape.gradient(w)), gradient_of_product(expected.tensor(), kW));
}

TEST(Fp8, AValueWhoseHandleLivesUntilBackwardStaysWhole) {
  const NamedPolicy policy({}, {}, {"activation"});
  HeapArena arena;
  Tape tape(arena, {.policy = &policy});
  const Value x = tape.leaf(matrix(kX, kRows), true), w = tape.leaf(matrix(kW, 5), true);
  Value a = gelu(tape, x);
  const Value y = linear(tape, DType::f32, a, w);
  tape.seed(y, matrix(kD, kRows));
  Backward backward(tape);
  const std::string expected = gradient_of_product(a.tensor(), kW);
  a = {};
  backward.run();
  EXPECT_EQ(bytes_of(tape.gradient(w)), expected);
}

TEST(Fp8, LeavesShortRowsAndOtherTypesAreKept) {
  const NamedPolicy policy({}, {}, {"activation", "linear"});
  std::vector<float> x(32, 0.3f), w(32, 0.2f), d(32, 1.0f);
  HeapArena arena;
  Tape tape(arena, {.policy = &policy});
  const Value leaf = tape.leaf(Tensor::of(x.data(), {32, 1}), true),
              weight = tape.leaf(Tensor::of(w.data(), {1, 1}), true);
  Value y = linear(tape, DType::bf16, leaf, weight);
  y = activation(tape, {ActivationKind::gelu, DType::bf16}, y);
  EXPECT_EQ(arena.live_bytes(), 2 * 64) << "a code and a scale would be two bytes";
}

using Fp8Models = AnyKernel;

TEST_F(Fp8Models, EveryModelReadsRoundedValuesAndLeavesNothingBehind) {
  std::vector<std::string> ops;
  for (const Op* op : all_ops()) ops.emplace_back(op->name);
  const NamedPolicy usual({}, {}, {"activation", "add_norm.h"}), all({}, {}, ops),
      mixed({"add_norm.h", "mlp/", "attention/qk_prepare"}, {}, ops), recomputed(ops, {}, ops);
  for (const std::string& name : small_model_names())
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      SCOPED_TRACE(name);
      const auto model = small_model(name, precision);
      const Pass keep = pass(*model, {});
      EXPECT_EQ(differing(keep, pass(*model, {.policy = &recomputed}), name), "") << "recompute comes first";
      for (const NamedPolicy* policy : {&usual, &all, &mixed})
        for (const bool defer : {false, true}) {
          const TapeOptions options{.defer_weight_gradients = defer, .policy = policy};
          PoisonArena poison;
          const Pass in_fp8 = pass(*model, options, HeadMode::store, &poison);
          EXPECT_EQ(in_fp8.live_after, 0);
          EXPECT_EQ(in_fp8.finished.size(), keep.finished.size());
          EXPECT_NE(differing(keep, in_fp8, name), "");
          EXPECT_EQ(differing(in_fp8, pass(*model, options), name), "");
          if (policy == &usual && !defer) {
            EXPECT_LT(in_fp8.peak, keep.peak);
          }
        }
    }
}

/// A value is rounded when nobody sends it any more.
TEST(Fp8, AValueThatIsBeingSentIsRoundedAfterwards) {
  const NamedPolicy policy({}, {}, {"activation"});
  run_ranks(2, [&](ThreadRank& self) {
    const std::unique_ptr<Communicator> group = self.group("two", {0, 1});
    HeapArena arena;
    Tape tape(arena, {.policy = &policy});
    const Value x = tape.leaf(matrix(kX, kRows), true), w = tape.leaf(matrix(kW, 5), true);
    Value a = gelu(tape, x);
    const std::vector<float> read = rounded(a.tensor());
    const std::string sent = bytes_of(a.tensor());
    const Value y = linear(tape, DType::f32, a, w), rows = all_gather_rows(tape, group.get(), a);
    const int64_t whole = arena.live_bytes();
    a = {};
    EXPECT_EQ(arena.live_bytes(), whole);
    EXPECT_EQ(bytes_of(rows.tensor()), sent + sent);
    EXPECT_EQ(whole - arena.live_bytes(), (kBytes + 63) / 64 * 64 - kCodes);
    tape.seed(y, matrix(kD, kRows));
    Backward(tape).run();
    EXPECT_EQ(bytes_of(tape.gradient(w)), gradient_of_product(matrix(read, kRows), kW));
  });
}

/// Rounding that fails, in the destructor of the last handle.
TEST(Fp8, WhatRoundingThrowsComesFromTheNextOp) {
  struct Failing final : SlotPolicy {
    SlotFate fate(const Op& op, int, const Segment&) const override {
      return op.name == std::string("activation") ? SlotFate::fp8 : SlotFate::keep;
    }
    std::optional<PackedForm> fp8_form(const TensorMeta& value) const override {
      static const Op op = [] {
        Op made = quantize_op();
        made.kernels = {{"test", [](const OpCall&) -> const char* { return nullptr; },
                         [](const OpCall&) { fail("no rounding today"); }, nullptr, nullptr}};
        made.kernels.push_back(made.kernels.front());
        return made;
      }();
      std::optional<PackedForm> form = ingot::fp8_form(value);
      form->pack.op = &op;
      return form;
    }
  };
  const Failing policy;
  HeapArena arena;
  {
    Tape tape(arena, {.policy = &policy});
    const Value x = tape.leaf(matrix(kX, kRows), true), w = tape.leaf(matrix(kW, 5), true);
    Value a = gelu(tape, x);
    const Value y = linear(tape, DType::f32, a, w);
    const int64_t whole = arena.live_bytes();
    a = {};
    EXPECT_EQ(arena.live_bytes(), whole) << "it stays whole";
    tape.seed(y, matrix(kD, kRows));
    EXPECT_THROW(gelu(tape, x), Error);
    EXPECT_THROW(Backward(tape).run(), Error);
  }
  EXPECT_EQ(arena.live_bytes(), 0);
}

/// Profile and observer see both ops, where their value's node is.
TEST(Fp8, BothOpsAreSeen) {
  struct Runs final : TapeObserver {
    void ran(const OpRun& r) override {
      seen.push_back(fmt::format("{} {} {} {}", r.op.name, r.segment.name, r.is_recompute, r.bytes));
    }
    bool wants_tensors() const override { return false; }
    void tensor(const std::string&, const Tensor&) override {}
    std::vector<std::string> seen;
  };
  const NamedPolicy policy({}, {}, {"mlp/"});
  std::vector<std::string> seen[2];
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::null}) {
    Runs runs;
    TapeProfile profile;
    HeapArena heap;
    CountingArena counting;
    Arena& arena = device == DeviceKind::cpu ? static_cast<Arena&>(heap) : counting;
    Tape tape(arena, {.device = device, .policy = &policy, .observer = &runs, .profile = &profile});
    const Value x = tape.leaf(matrix(kX, kRows), true), w = tape.leaf(matrix(kW, 5), true);
    tape.begin_segment("mlp", 3);
    Value a = gelu(tape, x);
    tape.begin_segment("head", -1);
    const Value y = linear(tape, DType::f32, std::exchange(a, {}), w);
    tape.seed(y, matrix(kD, kRows));
    Backward(tape).run();
    const double bytes = kBytes + kRows * (kWidth + 2);
    for (const std::string& expected :
         {fmt::format("quantize mlp false {}", bytes), fmt::format("dequantize mlp true {}", bytes)})
      EXPECT_EQ(std::count(runs.seen.begin(), runs.seen.end(), expected), 1) << expected;
    EXPECT_EQ(profile["quantize"].calls, 1);
    EXPECT_EQ(profile["dequantize"].calls, 1);
    seen[device == DeviceKind::null] = runs.seen;
  }
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace ingot::test::fp8_test
