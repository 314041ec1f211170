// The tape: how long buffers live, how gradients add up, that deferral, freezing and planned memory change
// nothing but memory and time, and what observers and diagnoses see.
#include "tape/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/glob.h"
#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/linear/linear.h"
#include "support/tape_pass.h"
#include "tape/backward.h"
#include "train/memory_policy.h"
#include "train/objective.h"
#include "train/step.h"

namespace ingot::test::tape_test {

using TapeTest = AnyKernel;

TEST_F(TapeTest, BuffersLiveAsLongAsSomebodyNeedsThem) {
  std::vector<float> x(64 * 4, 0.5f), w(4 * 4, 0.25f), d(64 * 4, 1.0f);
  constexpr int64_t kBytes = 64 * 4 * 4;
  HeapArena arena;
  {  // inference: a buffer is freed with its last handle
    Tape tape(arena, {.record = false});
    Value y = linear(tape, DType::f32, tape.leaf(Tensor::of(x.data(), {64, 4})),
                     tape.leaf(Tensor::of(w.data(), {4, 4})));
    EXPECT_EQ(arena.live_bytes(), kBytes);
    Value copy = y;
    y = {};
    EXPECT_EQ(arena.live_bytes(), kBytes);
    copy = activation(tape, {ActivationKind::gelu, DType::f32}, copy);
    EXPECT_EQ(arena.live_bytes(), kBytes) << "the linear's output had no reader left";
    EXPECT_EQ(arena.peak_bytes(), 2 * kBytes);
    copy = {};
    EXPECT_EQ(arena.live_bytes(), 0);
    EXPECT_TRUE(tape.nodes().empty());
  }
  {  // recording: what backward reads stays, the rest is freed
    Tape tape(arena, {});
    const Value leaf = tape.leaf(Tensor::of(x.data(), {64, 4}), true);
    Value y = linear(tape, DType::f32, leaf, tape.leaf(Tensor::of(w.data(), {4, 4})));
    Value z = activation(tape, {ActivationKind::gelu, DType::f32}, y);
    Value s = add(tape, DType::f32, z, leaf);
    y = {}, z = {};
    EXPECT_EQ(arena.live_bytes(), 2 * kBytes) << "the activation's input is kept, its output is not";
    tape.seed(s, Tensor::of(d.data(), {64, 4}));
    s = {};
    EXPECT_EQ(arena.live_bytes(), kBytes);
    Backward(tape).run();
    EXPECT_EQ(arena.live_bytes(), kBytes) << "only the leaf's gradient is left";
    EXPECT_TRUE(tape.gradient(leaf).defined());
  }
  EXPECT_EQ(arena.live_bytes(), 0);
}

TEST_F(TapeTest, GradientsThatForwardWritesCountOnce) {
  const auto model = small_model("gpt2", Precision::f32());  // the embedding is the head's weight as well
  ASSERT_TRUE(model->config().tied);
  const Pass stored = pass(*model, {}, HeadMode::store), early = pass(*model, {}, HeadMode::gradient);
  EXPECT_EQ(differing(stored, early, "gpt2"), "");
  EXPECT_EQ(early.finished, stored.finished);
  EXPECT_LT(early.peak, stored.peak);
  const NamedPolicy everything({"head/", "mlp/", "attention/"});
  const Pass recomputed = pass(*model, {.policy = &everything}, HeadMode::gradient);
  EXPECT_EQ(differing(stored, recomputed, "gpt2"), "") << "recomputing forward adds nothing";
  EXPECT_EQ(recomputed.finished, stored.finished);
}

TEST_F(TapeTest, FanOutAddsUp) {
  std::vector<double> x = {1, -2, 3}, d = {1, 10, 100};
  HeapArena arena;
  Tape tape(arena, {});
  const Value leaf = tape.leaf(Tensor::of(x.data(), {1, 3}), true),
              untouched = tape.leaf(Tensor::of(x.data(), {1, 3}), true);
  const Value twice = add(tape, DType::f64, leaf, leaf), thrice = add(tape, DType::f64, twice, leaf);
  const Value unused = add(tape, DType::f64, thrice, untouched);  // no cotangent ever reaches it
  const Value five = add(tape, DType::f64, thrice, twice);
  tape.seed(five, Tensor::of(d.data(), {1, 3}));
  Backward(tape).run();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(five.tensor().as<double>()[i], 5 * x[i]);
    EXPECT_EQ(tape.gradient(leaf).as<double>()[i], 5 * d[i]);
  }
  EXPECT_FALSE(tape.gradient(untouched).defined());
}

TEST_F(TapeTest, EveryModelLeavesNothingBehind) {
  for (const std::string& name : small_model_names()) {
    SCOPED_TRACE(name);
    const Pass p = pass(name);
    EXPECT_EQ(p.live_after, 0);
    EXPECT_EQ(p.finished.size(), std::set<int>(p.finished.begin(), p.finished.end()).size())
        << "finished once each";
    const Decoder decoder(small_model_config(name));
    size_t trainable = 0;
    for (int i = 0; i < decoder.table().size(); ++i) trainable += decoder.table()[i].trainable;
    EXPECT_EQ(p.finished.size(), trainable);
    for (size_t i = 0; i < p.gradients.size(); ++i)
      EXPECT_EQ(p.gradients[i].empty(), !decoder.table()[static_cast<int>(i)].trainable)
          << decoder.table()[static_cast<int>(i)].name;
  }
}

TEST_F(TapeTest, DeferredWeightGradientsHaveTheSameBits) {
  for (const std::string& name : small_model_names()) {
    const Pass now = pass(name), later = pass(name, {.defer_weight_gradients = true});
    EXPECT_EQ(differing(now, later, name), "") << name;
    EXPECT_GE(later.peak, now.peak) << name << ": cotangents wait with the weights' gradients";
  }
}

TEST_F(TapeTest, DeferredWeightGradientsRunInParts) {
  std::vector<float> x(8, 1.0f), w(16, 1.0f), d(8, 1.0f);
  struct Sink final : GradientSink {
    std::vector<float> g = std::vector<float>(16);
    bool wants(int) override { return true; }
    GradSlot slot(int) override { return {Tensor::of(g.data(), {4, 4}), written++ > 0}; }
    void finished(int) override { ++ends; }
    int written = 0, ends = 0;
  } sink;
  HeapArena arena;
  Tape tape(arena, {.defer_weight_gradients = true, .sink = &sink});
  const Value p = tape.parameter(0, Tensor::of(w.data(), {4, 4}));
  Value y = linear(tape, DType::f32, tape.leaf(Tensor::of(x.data(), {2, 4})), p);
  y = linear(tape, DType::f32, y, p);
  tape.seed(y, Tensor::of(d.data(), {2, 4}));
  Backward backward(tape);
  while (backward.advance()) {
  }
  EXPECT_EQ(backward.deferred(), 2u);
  EXPECT_EQ(sink.written, 0);
  backward.run_deferred(1);
  EXPECT_EQ(sink.written, 1);
  EXPECT_EQ(sink.ends, 0) << "a second contribution waits";
  backward.run_deferred();
  EXPECT_EQ(sink.written, 2);
  EXPECT_EQ(sink.ends, 1);
  EXPECT_EQ(backward.deferred(), 0u);
  // d_w = d_y2^T y1 + d_y1^T x = 2 * 4 + 4 * 2, elementwise for all ones.
  for (const float g : sink.g) EXPECT_EQ(g, 16.0f);
}

TEST_F(TapeTest, HeadModesHaveTheSameBits) {
  for (const char* name : {"gpt2", "llama-window", "zaya"}) {
    const auto model = small_model(name, Precision::f32());
    EXPECT_EQ(differing(pass(*model, {}), pass(*model, {}, HeadMode::recompute), name), "") << name;
  }
}

TEST_F(TapeTest, SegmentsAdvanceOneByOne) {
  std::vector<float> x(8, 1.0f), d(8, 1.0f);
  HeapArena arena;
  Tape tape(arena, {});
  const Value leaf = tape.leaf(Tensor::of(x.data(), {2, 4}), true);
  tape.begin_segment("attention", 0);
  Value y = add(tape, DType::f32, leaf, leaf);
  tape.begin_segment("mlp", 0);
  Value z = add(tape, DType::f32, y, y);
  tape.begin_segment("head", -1);
  tape.seed(z, Tensor::of(d.data(), {2, 4}));
  Backward backward(tape);
  ASSERT_STREQ(backward.next()->name, "head");
  EXPECT_TRUE(backward.advance());
  ASSERT_STREQ(backward.next()->name, "mlp");
  EXPECT_TRUE(backward.advance());
  EXPECT_FALSE(tape.gradient(leaf).defined()) << "attention has not run";
  ASSERT_STREQ(backward.next()->name, "attention");
  backward.advance();
  EXPECT_EQ(tape.gradient(leaf).as<float>()[0], 4.0f);
  ASSERT_STREQ(backward.next()->name, "outside");
  EXPECT_FALSE(backward.advance());
  EXPECT_EQ(backward.next(), nullptr);
  EXPECT_FALSE(backward.advance());
}

TEST_F(TapeTest, FrozenParametersCostNothingAndChangeNothingElse) {
  for (const std::string& name : small_model_names()) {
    SCOPED_TRACE(name);
    const auto model = small_model(name, Precision::f32());
    const Pass all = pass(*model, {});
    for (const std::vector<std::string>& patterns :
         {std::vector<std::string>{"embed.weight", "*.down.weight", "*norm*"},
          {"*.attention.*"},
          {"*.mlp.*", "*.moe.*"},
          {"embed.weight", "*bias*", "*scale*", "layers.0.*", "layers.1.*"}}) {
      const auto frozen = small_model(name, Precision::f32());
      for (const std::string& p : patterns)
        for (int i = 0; i < frozen->weights().size(); ++i)
          if (glob_match(p, frozen->decoder().table()[i].name))
            frozen->freeze({frozen->decoder().table()[i].name});
      const Pass some = pass(*frozen, {});
      for (int i = 0; i < frozen->weights().size(); ++i) {
        const ParameterSpec& spec = frozen->decoder().table()[i];
        const auto n = static_cast<size_t>(i);
        if (spec.trainable)
          EXPECT_TRUE(some.gradients[n] == all.gradients[n]) << spec.name;
        else
          EXPECT_TRUE(some.gradients[n].empty()) << spec.name;
      }
    }
    const auto nothing = small_model(name, Precision::f32());
    nothing->freeze({"*"});
    EXPECT_LT(pass(*nothing, {}).peak, all.peak / 2) << "nothing is saved for nobody";
  }
  EXPECT_THROW(small_model("llama", Precision::f32())->freeze({"embedd.*"}), Error);
}

TEST_F(TapeTest, PlannedMemoryHasTheSameBitsAndNoMisses) {
  for (const std::string& name : small_model_names()) {
    SCOPED_TRACE(name);
    const auto model = small_model(name, Precision::f32());
    const data::Batch batch = packed_batch(2, 64, {5, 27, 1, 31, 64}, model->config().vocab);
    const TempDir folder;
    const auto store = file_offload_store(folder.path());
    const NamedPolicy policy({"activation"}), offload({"mlp/"}, {"add_norm.stream", "attention/linear"}),
        fp8({"add_norm.h"}, {}, {"activation", "attention/"});
    for (const SlotPolicy* p :
         {static_cast<const SlotPolicy*>(nullptr), static_cast<const SlotPolicy*>(&policy),
          static_cast<const SlotPolicy*>(&offload), static_cast<const SlotPolicy*>(&fp8)}) {
      StepOptions options{.micro_batch = 1, .policy = p, .offload_store = store.get()};
      const StepPlan plan = plan_step(*model, options, 1, 64);
      GradientBuffer gradients(model->decoder().table(), {}, DType::f32);
      StepRunner runner(*model, gradients);
      for (int step = 0; step < 2; ++step) runner.run(batch, options);
      EXPECT_EQ(runner.plan_misses(), 0);
      EXPECT_EQ(runner.slab_bytes(), plan.memory.slab_bytes);
      // A value that is read back, or rounded, has several allocations, far from each other, which leaves
      // more gaps: at most 23.5 %, in zaya-dense, and in FP8 13.8 %, in mla-direct.
      const int64_t share = p == &offload || p == &fp8 ? 4 : 9;
      EXPECT_LE(plan.memory.slab_bytes, plan.peak_bytes + plan.peak_bytes / share) << "fragmentation";
    }
    HeapArena arena;
    PlannedArena slab(plan_step(*model, {.micro_batch = 1}, 1, 64).memory);
    EXPECT_EQ(
        differing(pass(*model, {}, HeadMode::store, &arena), pass(*model, {}, HeadMode::store, &slab), name),
        "");
  }
}

TEST_F(TapeTest, ObserversSeeEveryTensorOnceUnderItsOwnName) {
  struct Names final : TapeObserver {
    void tensor(const std::string& name, const Tensor&) override {
      EXPECT_TRUE(names.insert(name).second) << name << " comes twice";
    }
    std::set<std::string> names;
  };
  for (const std::string& name : small_model_names()) {
    SCOPED_TRACE(name);
    Names first, second;
    pass(name, {.observer = &first});
    const NamedPolicy policy({"activation", "add_norm", "linear"});
    pass(name, {.policy = &policy, .observer = &second});
    EXPECT_EQ(first.names, second.names) << "recomputation is not seen";
    for (const char* expected :
         {"embed.embedding#0.y", "layer1.attention.attention#0.o", "layer2.attention.linear#1.d_weight"})
      EXPECT_TRUE(first.names.count(expected)) << expected;
  }
}

TEST_F(TapeTest, TheFirstBadOpIsNamed) {
  const auto model = small_model("llama", Precision::f32());
  model->weights().master(model->decoder().table().find("layers.1.mlp.gate_up.weight")).as<float>()[7] = NAN;
  try {
    pass(*model, {.check_finite = true});
    FAIL() << "expected an Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("layer1.mlp.linear#0"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("forward"), std::string::npos) << e.what();
  }
}

/// One line per node: op, attributes, inputs and outputs with their ids and shapes.
std::string printed(const Tape& tape) {
  std::string text;
  const auto print_value = [&](const char* name, int32_t id) {
    if (id >= 0) text += fmt::format(" {}=%{}:{}", name, id, tape.meta_of(id).first.str());
  };
  for (const Segment& s : tape.segments())
    for (int32_t n = s.first_node; n < s.end_node; ++n) {
      const Node& node = tape.nodes()[static_cast<size_t>(n)];
      text += fmt::format("{} {} {}{{{}}}", s.name, s.layer, node.op->name, node.op->print(node.attr.data()));
      for (size_t i = 0; i < node.inputs.size(); ++i) print_value(node.op->inputs[i].name, node.inputs[i]);
      text += " ->";
      for (size_t i = 0; i < node.outputs.size(); ++i) print_value(node.op->outputs[i].name, node.outputs[i]);
      text += '\n';
    }
  return text;
}

TEST_F(TapeTest, ARecordingCanBePrinted) {
  std::vector<float> x(8, 1.0f), w(12, 1.0f);
  HeapArena arena;
  Tape tape(arena, {});
  const Value leaf = tape.leaf(Tensor::of(x.data(), {2, 4}), true);
  tape.begin_segment("mlp", 3);
  const Value y = linear(tape, DType::f32, leaf, tape.leaf(Tensor::of(w.data(), {3, 4})));
  const Value z = activation(tape, {ActivationKind::relu2, DType::bf16}, y);
  EXPECT_EQ(printed(tape),
            "mlp 3 linear{out=f32} x=%0:f32[2, 4] weight=%1:f32[3, 4] -> y=%2:f32[2, 3]\n"
            "mlp 3 activation{relu2 out=bf16} x=%2:f32[2, 3] -> y=%3:bf16[2, 3]\n");
}

}  // namespace ingot::test::tape_test
