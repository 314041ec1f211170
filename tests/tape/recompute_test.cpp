// What is kept, recomputed or offloaded changes memory and time, and no bit: by op, by module, on every
// policy level.
#include <gtest/gtest.h>

#include <map>

#include "ops/activation/activation.h"
#include "ops/registry.h"
#include "support/tape_pass.h"
#include "train/memory_policy.h"

namespace ingot::test::recompute_test {

using RecomputeTest = AnyKernel;

TEST_F(RecomputeTest, RecomputationHasTheSameBitsAndALowerPeak) {
  std::vector<std::string> ops;
  for (const Op* op : all_ops()) ops.emplace_back(op->name);
  for (const std::string& name : small_model_names()) {
    const Pass keep = pass(name);
    for (const std::string& op : ops) {
      const NamedPolicy policy({op});
      const Pass recomputed = pass(name, {.policy = &policy});
      EXPECT_EQ(differing(keep, recomputed, name), "") << name << " recomputes " << op;
      EXPECT_EQ(recomputed.live_after, 0) << name << " recomputes " << op;
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

const std::vector<std::string> kModules = {"attention/", "mlp/",     "route/",  "shared/",
                                           "dispatch/",  "experts/", "combine/"};

TEST_F(RecomputeTest, RecomputedModulesHaveTheSameBits) {
  for (const std::string& name : small_model_names()) {
    const auto model = small_model(name, Precision::f32());
    const Pass keep = pass(*model, {});
    int64_t lowest = keep.peak;
    for (const std::string& module : kModules) {
      const NamedPolicy policy({module});
      const Pass recomputed = pass(*model, {.policy = &policy});
      EXPECT_EQ(differing(keep, recomputed, name), "") << name << " recomputes " << module;
      lowest = std::min(lowest, recomputed.peak);
    }
    const NamedPolicy everything(kModules);
    const Pass all = pass(*model, {.policy = &everything});
    EXPECT_EQ(differing(keep, all, name), "") << name;
    EXPECT_LT(all.peak, keep.peak) << name;
    EXPECT_LE(all.peak, lowest) << name;
    EXPECT_EQ(all.live_after, 0) << name;
  }
}

TEST_F(RecomputeTest, RecomputationEndsAtTheStream) {
  /// Which ops are recomputed, and how far ahead of backward.
  struct Recomputations final : TapeObserver {
    void tensor(const std::string&, const Tensor&) override {}
    bool wants_tensors() const override { return false; }
    void ran(const OpRun& r) override {
      if (r.direction != Direction::forward && r.segment.layer >= 0)
        reached = std::min(reached, r.segment.layer);
      if (!r.is_recompute) return;
      ++recomputed[r.op.name];
      if (r.segment.layer >= 0) {
        EXPECT_GE(r.segment.layer, reached - 1)
            << r.op.name << " is recomputed layers before backward gets there";
      }
    }
    int reached = 0;  ///< lowest layer
    std::map<std::string, int> recomputed;
  };
  for (const std::string& name : small_model_names()) {
    SCOPED_TRACE(name);
    const auto model = small_model(name, Precision::f32());
    const ModelConfig& m = model->config();
    const auto recomputed = [&](const std::vector<std::string>& names) {
      Recomputations seen;
      seen.reached = static_cast<int>(m.layers + m.mtp.modules());
      const NamedPolicy policy(names);
      pass(*model, {.policy = &policy, .observer = &seen});
      return seen.recomputed;
    };
    const std::map<std::string, int> norms = recomputed({"add_norm.h"});
    EXPECT_EQ(norms.size(), 1u) << "nothing before the merge";
    EXPECT_EQ(norms.count("add_norm"), 1u);
    EXPECT_GT(recomputed(kModules).size(), 2u);
  }
}

TEST_F(RecomputeTest, EveryRungOfTheLadderHasTheSameBits) {
  const TempDir folder;
  const auto store = file_offload_store(folder.path());
  for (const std::string& name : small_model_names())
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      const auto model = small_model(name, precision);
      const Pass keep = pass(*model, {});
      std::vector<std::string> recompute, offload;
      for (const PolicyLevel& level : policy_levels()) {
        add_names(recompute, level.recompute);
        add_names(offload, level.offload);
        const NamedPolicy policy(recompute, offload);
        for (const bool defer : {false, true}) {
          PoisonArena poison;
          const TapeOptions options{
              .defer_weight_gradients = defer, .policy = &policy, .offload_store = store.get()};
          const Pass recomputed = pass(*model, options, HeadMode::store, &poison);
          EXPECT_EQ(differing(keep, recomputed, name), "") << name << ": " << level.cost;
          EXPECT_EQ(recomputed.live_after, 0) << name << ": " << level.cost;
        }
      }
    }
}

TEST_F(RecomputeTest, OffloadedValuesComeBackWithTheSameBitsAndALowerPeak) {
  const TempDir folder;
  const auto store = file_offload_store(folder.path());
  std::vector<std::string> ops;
  for (const Op* op : all_ops()) ops.emplace_back(op->name);
  for (const std::string& name : small_model_names()) {
    const auto model = small_model(name, Precision::f32());
    const Pass keep = pass(*model, {});
    const NamedPolicy all({}, ops),
        mixed({"activation", "experts/"}, {"add_norm", "attention/", "dispatch/"});
    for (const NamedPolicy* policy : {&all, &mixed})
      for (const bool defer : {false, true}) {
        const Pass offloaded =
            pass(*model, {.defer_weight_gradients = defer, .policy = policy, .offload_store = store.get()});
        EXPECT_EQ(differing(keep, offloaded, name), "") << name;
        EXPECT_EQ(offloaded.live_after, 0) << name;
        if (!defer) {
          EXPECT_LT(offloaded.peak, keep.peak) << name;
        }
      }
    PoisonArena poison;
    const Pass poisoned =
        pass(*model, {.policy = &mixed, .offload_store = store.get()}, HeadMode::store, &poison);
    EXPECT_EQ(differing(keep, poisoned, name), "") << name << ": somebody reads what was freed";
  }
}

TEST_F(RecomputeTest, NobodyReadsWhatWasFreed) {
  for (const std::string& name : small_model_names())
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      const auto model = small_model(name, precision);
      PoisonArena poison;
      EXPECT_EQ(differing(pass(*model, {}), pass(*model, {}, HeadMode::store, &poison), name), "") << name;
    }
}

TEST_F(RecomputeTest, AForwardWithoutBackwardLeavesTheStoreEmpty) {
  const TempDir folder;
  const auto store = file_offload_store(folder.path());
  const NamedPolicy policy({}, {"linear"});
  const auto model = small_model("llama", Precision::f32());
  const data::Batch batch = packed_batch(1, 64, kDocuments, model->config().vocab);
  const MicroBatch mb = micro_batch(batch, 0, 1);
  GradientBuffer gradients(model->decoder().table(), {}, DType::f32);
  HeapArena arena;
  {
    Tape tape(arena, {.policy = &policy, .offload_store = store.get(), .sink = &gradients});
    Context c{tape, model->weights(), &mb.rows, tape.leaf(mb.positions)};
    model->decoder().forward(c, tape.leaf(mb.ids));
    EXPECT_GT(arena.live_bytes(), 0);
  }
  EXPECT_EQ(arena.live_bytes(), 0);
}

/// Has no space for what the destructor of the last handle hands it from the second value on.
class FullStore final : public OffloadStore {
 public:
  Handle write(const void*, int64_t) override {
    if (++written > 1) throw Error("the store has no space", "make some");
    return 7;
  }
  void read(Handle, void*) override {}
  void wait(Handle) override {}
  void forget(Handle handle) override {
    EXPECT_EQ(handle, 7);
    ++forgotten;
  }
  int written = 0, forgotten = 0;
};

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

TEST(Offload, WhatTheStoreThrowsComesFromTheNextOpAndTheNextSegment) {
  const NamedPolicy policy({}, {"activation"});
  const std::vector<float> numbers(64, 0.5f), ones(64, 1.0f);
  FullStore full;
  for (OffloadStore* const store : {static_cast<OffloadStore*>(&full), static_cast<OffloadStore*>(nullptr)}) {
    HeapArena arena;
    {
      Tape tape(arena, {.policy = &policy, .offload_store = store});
      const Value x = tape.leaf(Tensor::of(numbers.data(), {8, 8}), true);
      const auto gelu = [&](const Value& of) {
        return activation(tape, {ActivationKind::gelu, DType::f32}, of);
      };
      Value a = gelu(x), b = gelu(a);
      const Value y = gelu(b);
      const int64_t whole = arena.live_bytes();
      a = {}, b = {};
      EXPECT_EQ(arena.live_bytes(), whole) << "the first stays as long as it is written";
      const char* const text = store != nullptr ? "the store has no space" : "the tape has no offload store";
      EXPECT_NE(error_of([&] { gelu(x); }).find(text), std::string::npos);
      tape.seed(y, Tensor::of(ones.data(), {8, 8}));
      EXPECT_NE(error_of([&] { Backward(tape).run(); }).find(text), std::string::npos);
    }
    EXPECT_EQ(arena.live_bytes(), 0);
  }
  EXPECT_EQ(full.written, 2);
  EXPECT_EQ(full.forgotten, 1);
}

}  // namespace ingot::test::recompute_test
