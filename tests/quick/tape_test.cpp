// The tape engine: how long buffers live, how gradients add up, what deferral, recomputation, freezing and
// planned memory may change (nothing but memory and time), and what observers and diagnoses see.
#include "tape/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/glob.h"
#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/linear/linear.h"
#include "support/small_models.h"
#include "support/support.h"
#include "train/memory_policy.h"
#include "train/objective.h"
#include "train/step.h"

namespace ingot::test::tape_test {

class AnyKernel : public ::testing::Test {
 protected:
  AnyKernel() : before_(kernel_policy()) { set_kernel_policy(KernelPolicy::any); }
  ~AnyKernel() override { set_kernel_policy(before_); }
  KernelPolicy before_;
};
using TapeTest = AnyKernel;

/// What one forward and backward left behind.
struct Pass {
  std::vector<std::string> gradients;  ///< bytes, by parameter; "" where nothing was written
  int64_t peak = 0, live_after = 0;
  size_t segments = 0;
  std::vector<int> finished;  ///< in order
};

const std::vector<int64_t> kDocuments = {5, 27, 1, 31};

/// Overwrites what is released with NaN: whoever reads it afterwards, or never wrote what it reads, shows.
class PoisonArena final : public Arena {
 public:
  Block allocate(int64_t bytes, const char* category) override {
    const Block b = heap_.allocate(bytes, category);
    if (b.data != nullptr) std::memset(b.data, 0xFF, static_cast<size_t>(b.bytes));
    count(b.bytes);
    return b;
  }
  void release(const Block& b) override {
    if (b.data != nullptr) std::memset(b.data, 0xFF, static_cast<size_t>(b.bytes));
    count(-b.bytes);
    heap_.release(b);
  }

 private:
  HeapArena heap_;
};

Pass pass(Model& model, TapeOptions options, HeadMode head = HeadMode::store, Arena* arena = nullptr) {
  HeapArena heap;
  Arena& memory = arena != nullptr ? *arena : heap;
  Pass p;
  GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
  gradients.on_finished = [&](int i) { p.finished.push_back(i); };
  options.sink = &gradients;
  const data::Batch batch = packed_batch(1, 64, kDocuments, model.config().vocab);
  const std::vector<LookAhead> ahead = look_ahead(batch, model.config().mtp);
  const MicroBatch mb = micro_batch(batch, 0, 1, ahead);
  const std::vector<float> d(64, -1.0f);
  const float aux = 0.5f;
  {
    Tape tape(memory, options);
    Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
    model.equip(c);
    {
      const Decoder& decoder = model.decoder();
      std::vector<BalanceLosses> balance;
      Stream s = decoder.embed(c, tape.leaf(mb.ids));
      decoder.blocks(c, s, 0, decoder.config().layers, balance);
      decoder.finish(c, s);
      const auto predict = [&](const Tensor& targets) {
        const Value weight_T = head == HeadMode::gradient ? tape.leaf(Tensor::of(d.data(), {64})) : Value();
        const HeadResult h = decoder.head(c, {.mode = head}, std::exchange(s.hidden_TD.back(), {}), tape.leaf(targets), {}, weight_T);
        tape.seed(h.logprob_T, Tensor::of(d.data(), {64}));
      };
      predict(mb.targets);
      for (const MicroBatch::Ahead& a : mb.ahead) {
        decoder.predict_ahead(c, s, tape.leaf(a.ids), balance);
        predict(a.targets);
      }
      for (const BalanceLosses& b : balance) {
        tape.seed(b.aux, Tensor::of(&aux, {1}));
        if (b.sequence.defined()) tape.seed(b.sequence, Tensor::of(&aux, {1}));
      }
    }
    Cursor cursor(tape);
    while (cursor.next() != nullptr) {
      ++p.segments;
      cursor.advance();
    }
    tape.drain();
    EXPECT_EQ(p.segments, tape.segments().size());
  }
  p.peak = memory.peak_bytes();
  p.live_after = memory.live_bytes();
  for (int i = 0; i < model.weights().size(); ++i) {
    const Tensor g = gradients.gradient(i);
    p.gradients.emplace_back(
        gradients.written(i) ? std::string(static_cast<char*>(g.data), static_cast<size_t>(g.bytes())) : "");
  }
  return p;
}

Pass pass(const std::string& name, TapeOptions options = {}) {
  const auto model = small_model(name, Precision::f32());
  return pass(*model, options);
}

/// Names of the parameters whose gradients differ.
std::string differing(const Pass& a, const Pass& b, const std::string& name) {
  const Decoder decoder(small_model_config(name));
  std::string text;
  for (size_t i = 0; i < a.gradients.size(); ++i)
    if (a.gradients[i] != b.gradients[i]) text += decoder.table()[static_cast<int>(i)].name + " ";
  return text;
}

TEST_F(TapeTest, BuffersLiveAsLongAsSomebodyNeedsThem) {
  std::vector<float> x(64 * 4, 0.5f), w(4 * 4, 0.25f), d(64 * 4, 1.0f);
  constexpr int64_t kBytes = 64 * 4 * 4;
  HeapArena arena;
  {  // inference: a buffer goes with its last handle
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
  {  // recording: what backward reads stays, what it does not read goes
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
    Cursor(tape).run();
    EXPECT_EQ(arena.live_bytes(), kBytes) << "only the leaf's gradient is left";
    EXPECT_TRUE(tape.gradient(leaf).defined());
  }
  EXPECT_EQ(arena.live_bytes(), 0);
}

TEST_F(TapeTest, GradientsThatForwardWritesCountOnce) {
  const auto model = small_model("gpt2", Precision::f32());  // whose table is the head's weight too
  ASSERT_TRUE(model->config().tied);
  const Pass stored = pass(*model, {}, HeadMode::store), early = pass(*model, {}, HeadMode::gradient);
  EXPECT_EQ(differing(stored, early, "gpt2"), "");
  EXPECT_EQ(early.finished, stored.finished);
  EXPECT_LT(early.peak, stored.peak);
  const NamedPolicy everything({"head/", "mlp/", "attention/"});
  const Pass again = pass(*model, {.policy = &everything}, HeadMode::gradient);
  EXPECT_EQ(differing(stored, again, "gpt2"), "") << "a repetition of forward adds nothing";
  EXPECT_EQ(again.finished, stored.finished);
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
  Cursor(tape).run();
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
      EXPECT_EQ(p.gradients[i].empty(), !decoder.table()[static_cast<int>(i)].trainable) << decoder.table()[static_cast<int>(i)].name;
  }
}

TEST_F(TapeTest, DeferredWeightGradientsHaveTheSameBits) {
  for (const std::string& name : small_model_names()) {
    const Pass now = pass(name), later = pass(name, {.defer_weight_gradients = true});
    EXPECT_EQ(differing(now, later, name), "") << name;
    EXPECT_GE(later.peak, now.peak) << name << ": cotangents wait with the weights' gradients";
  }
}

TEST_F(TapeTest, DeferredWorkIsDrainedInParts) {
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
  Cursor cursor(tape);
  while (cursor.advance()) {
  }
  EXPECT_EQ(tape.deferred(), 2u);
  EXPECT_EQ(sink.written, 0);
  tape.drain(1);
  EXPECT_EQ(sink.written, 1);
  EXPECT_EQ(sink.ends, 0) << "a second contribution waits";
  tape.drain();
  EXPECT_EQ(sink.written, 2);
  EXPECT_EQ(sink.ends, 1);
  EXPECT_EQ(tape.deferred(), 0u);
  // d_w = d_y2^T y1 + d_y1^T x = 2 * 4 + 4 * 2, elementwise for all ones.
  for (const float g : sink.g) EXPECT_EQ(g, 16.0f);
}

TEST_F(TapeTest, RecomputationHasTheSameBitsAndALowerPeak) {
  std::vector<std::string> ops;
  for (const Op* op : all_ops()) ops.emplace_back(op->name);
  for (const std::string& name : small_model_names()) {
    const Pass keep = pass(name);
    for (const std::string& op : ops) {
      const NamedPolicy policy({op});
      const Pass again = pass(name, {.policy = &policy});
      EXPECT_EQ(differing(keep, again, name), "") << name << " recomputes " << op;
      EXPECT_EQ(again.live_after, 0) << name << " recomputes " << op;
    }
    const NamedPolicy all(ops);
    const Pass deferred = pass(name, {.defer_weight_gradients = true, .policy = &all});
    EXPECT_EQ(differing(keep, deferred, name), "") << name << " recomputes everything and defers";
    const NamedPolicy usual({"activation", "add_norm.h"});
    const Pass cheap = pass(name, {.policy = &usual});
    EXPECT_EQ(differing(keep, cheap, name), "") << name;
    EXPECT_LT(cheap.peak, keep.peak) << name;
  }
}

const std::vector<std::string> kModules = {"attention/", "mlp/", "route/", "shared/", "dispatch/", "experts/", "combine/"};

TEST_F(TapeTest, WholeModulesComputedAgainHaveTheSameBits) {
  for (const std::string& name : small_model_names()) {
    const auto model = small_model(name, Precision::f32());
    const Pass keep = pass(*model, {});
    int64_t lowest = keep.peak;
    for (const std::string& module : kModules) {
      const NamedPolicy policy({module});
      const Pass again = pass(*model, {.policy = &policy});
      EXPECT_EQ(differing(keep, again, name), "") << name << " computes again " << module;
      lowest = std::min(lowest, again.peak);
    }
    const NamedPolicy everything(kModules);
    const Pass all = pass(*model, {.policy = &everything});
    EXPECT_EQ(differing(keep, all, name), "") << name;
    EXPECT_LT(all.peak, keep.peak) << name;
    EXPECT_LE(all.peak, lowest) << name;
    EXPECT_EQ(all.live_after, 0) << name;
  }
}

TEST_F(TapeTest, RecomputationEndsAtTheStream) {
  /// What is repeated, and how far ahead of backward.
  struct Repetitions final : TapeObserver {
    void tensor(const std::string&, const Tensor&) override {}
    bool wants_tensors() const override { return false; }
    void ran(const OpRun& r) override {
      if (r.direction != Direction::forward && r.segment.layer >= 0) reached = std::min(reached, r.segment.layer);
      if (!r.again) return;
      ++repeated[r.op.name];
      if (r.segment.layer >= 0) {
        EXPECT_GE(r.segment.layer, reached - 1) << r.op.name << " runs again layers before backward gets there";
      }
    }
    int reached = 0;  ///< lowest layer
    std::map<std::string, int> repeated;
  };
  for (const std::string& name : small_model_names()) {
    SCOPED_TRACE(name);
    const auto model = small_model(name, Precision::f32());
    const ModelConfig& m = model->config();
    const auto repetitions = [&](const std::vector<std::string>& names) {
      Repetitions seen;
      seen.reached = static_cast<int>(m.layers + m.mtp.modules());
      const NamedPolicy policy(names);
      pass(*model, {.policy = &policy, .observer = &seen});
      return seen.repeated;
    };
    const std::map<std::string, int> norms = repetitions({"add_norm.h"});
    EXPECT_EQ(norms.size(), 1u) << "nothing before the merge";
    EXPECT_EQ(norms.count("add_norm"), 1u);
    EXPECT_GT(repetitions(kModules).size(), 2u);
  }
}

TEST_F(TapeTest, EveryRungOfTheLadderHasTheSameBits) {
  const TempDir folder;
  const auto tier = file_offload_tier(folder.path());
  for (const std::string& name : small_model_names())
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      const auto model = small_model(name, precision);
      const Pass keep = pass(*model, {});
      std::vector<std::string> recompute, offload;
      for (const PolicyRung& rung : policy_ladder()) {
        recompute.insert(recompute.end(), rung.recompute.begin(), rung.recompute.end());
        offload.insert(offload.end(), rung.offload.begin(), rung.offload.end());
        const NamedPolicy policy(recompute, offload);
        for (const bool defer : {false, true}) {
          PoisonArena poison;
          const TapeOptions options{.defer_weight_gradients = defer, .policy = &policy, .tier = tier.get()};
          const Pass again = pass(*model, options, HeadMode::store, &poison);
          EXPECT_EQ(differing(keep, again, name), "") << name << ": " << rung.cost;
          EXPECT_EQ(again.live_after, 0) << name << ": " << rung.cost;
        }
      }
    }
}

TEST_F(TapeTest, OffloadedValuesComeBackWithTheSameBitsAndALowerPeak) {
  const TempDir folder;
  const auto tier = file_offload_tier(folder.path());
  std::vector<std::string> ops;
  for (const Op* op : all_ops()) ops.emplace_back(op->name);
  for (const std::string& name : small_model_names()) {
    const auto model = small_model(name, Precision::f32());
    const Pass keep = pass(*model, {});
    const NamedPolicy all({}, ops), mixed({"activation", "experts/"}, {"add_norm", "attention/", "dispatch/"});
    for (const NamedPolicy* policy : {&all, &mixed})
      for (const bool defer : {false, true}) {
        const Pass away = pass(*model, {.defer_weight_gradients = defer, .policy = policy, .tier = tier.get()});
        EXPECT_EQ(differing(keep, away, name), "") << name;
        EXPECT_EQ(away.live_after, 0) << name;
        if (!defer) {
          EXPECT_LT(away.peak, keep.peak) << name;
        }
      }
    PoisonArena poison;
    const Pass poisoned = pass(*model, {.policy = &mixed, .tier = tier.get()}, HeadMode::store, &poison);
    EXPECT_EQ(differing(keep, poisoned, name), "") << name << ": somebody reads what was freed";
  }
}

TEST_F(TapeTest, NobodyReadsWhatWasFreed) {
  for (const std::string& name : small_model_names())
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      const auto model = small_model(name, precision);
      PoisonArena poison;
      EXPECT_EQ(differing(pass(*model, {}), pass(*model, {}, HeadMode::store, &poison), name), "") << name;
    }
}

TEST_F(TapeTest, AForwardWithoutBackwardLeavesTheTierEmpty) {
  const TempDir folder;
  const auto tier = file_offload_tier(folder.path());
  const NamedPolicy policy({}, {"linear"});
  const auto model = small_model("llama", Precision::f32());
  const data::Batch batch = packed_batch(1, 64, kDocuments, model->config().vocab);
  const MicroBatch mb = micro_batch(batch, 0, 1);
  GradientBuffer gradients(model->decoder().table(), {}, DType::f32);
  HeapArena arena;
  {
    Tape tape(arena, {.policy = &policy, .tier = tier.get(), .sink = &gradients});
    Context c{tape, model->weights(), &mb.rows, tape.leaf(mb.positions)};
    model->decoder().forward(c, tape.leaf(mb.ids));
    EXPECT_GT(arena.live_bytes(), 0);
  }
  EXPECT_EQ(arena.live_bytes(), 0);
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
  Cursor cursor(tape);
  ASSERT_STREQ(cursor.next()->name, "head");
  EXPECT_TRUE(cursor.advance());
  ASSERT_STREQ(cursor.next()->name, "mlp");
  EXPECT_TRUE(cursor.advance());
  EXPECT_FALSE(tape.gradient(leaf).defined()) << "attention has not run";
  ASSERT_STREQ(cursor.next()->name, "attention");
  cursor.advance();
  EXPECT_EQ(tape.gradient(leaf).as<float>()[0], 4.0f);
  ASSERT_STREQ(cursor.next()->name, "outside");
  EXPECT_FALSE(cursor.advance());
  EXPECT_EQ(cursor.next(), nullptr);
  EXPECT_FALSE(cursor.advance());
}

TEST_F(TapeTest, FrozenParametersCostNothingAndChangeNothingElse) {
  for (const std::string& name : small_model_names()) {
    SCOPED_TRACE(name);
    const auto model = small_model(name, Precision::f32());
    const Pass all = pass(*model, {});
    for (const std::vector<std::string>& patterns :
         {std::vector<std::string>{"embed.weight", "*.down.weight", "*norm*"}, {"*.attention.*"}, {"*.mlp.*", "*.moe.*"},
          {"embed.weight", "*bias*", "*scale*", "layers.0.*", "layers.1.*"}}) {
      const auto frozen = small_model(name, Precision::f32());
      for (const std::string& p : patterns)
        for (int i = 0; i < frozen->weights().size(); ++i)
          if (glob_match(p, frozen->decoder().table()[i].name)) frozen->freeze({frozen->decoder().table()[i].name});
      const Pass some = pass(*frozen, {});
      for (int i = 0; i < frozen->weights().size(); ++i) {
        const ParameterSpec& spec = frozen->decoder().table()[i];
        const auto n = static_cast<size_t>(i);
        if (spec.trainable) EXPECT_TRUE(some.gradients[n] == all.gradients[n]) << spec.name;
        else EXPECT_TRUE(some.gradients[n].empty()) << spec.name;
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
    const auto tier = file_offload_tier(folder.path());
    const NamedPolicy policy({"activation"}), away({"mlp/"}, {"add_norm.stream", "attention/linear"});
    for (const SlotPolicy* p : {static_cast<const SlotPolicy*>(nullptr), static_cast<const SlotPolicy*>(&policy),
                                static_cast<const SlotPolicy*>(&away)}) {
      StepOptions options{.micro_batch = 1, .policy = p, .tier = tier.get()};
      const StepPlan plan = plan_step(*model, options, 1, 64);
      GradientBuffer gradients(model->decoder().table(), {}, DType::f32);
      StepRunner runner(*model, gradients);
      for (int step = 0; step < 2; ++step) runner.run(batch, options);
      EXPECT_EQ(runner.plan_misses(), 0);
      EXPECT_EQ(runner.slab_bytes(), plan.memory.slab_bytes);
      // What comes back from disk is born far from where it died, which leaves more gaps: most of all (.235) in zaya-dense.
      EXPECT_LE(plan.memory.slab_bytes, plan.peak_bytes + plan.peak_bytes / (p == &away ? 4 : 9)) << "fragmentation";
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

TEST_F(TapeTest, DumpPrintsOneLinePerNode) {
  std::vector<float> x(8, 1.0f), w(12, 1.0f);
  HeapArena arena;
  Tape tape(arena, {});
  const Value leaf = tape.leaf(Tensor::of(x.data(), {2, 4}), true);
  tape.begin_segment("mlp", 3);
  const Value y = linear(tape, DType::f32, leaf, tape.leaf(Tensor::of(w.data(), {3, 4})));
  const Value z = activation(tape, {ActivationKind::relu2, DType::bf16}, y);
  EXPECT_EQ(tape.dump(),
            "mlp (layer 3)\n"
            "  linear{out=f32} x=%0:f32[2, 4] weight=%1:f32[3, 4] -> y=%2:f32[2, 3]\n"
            "  activation{relu2 out=bf16} x=%2:f32[2, 3] -> y=%3:bf16[2, 3]\n");
}

}  // namespace ingot::test::tape_test
