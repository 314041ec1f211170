// Pairs of ops that one kernel of a device runs forward (OpPair): profile and observer see two ops,
// recomputation runs each, and where rows of other ranks are to arrive they run one after the other.
#include <gtest/gtest.h>

#include "comm/threads.h"
#include "device/gpu/emulator.h"
#include "device/sim/sim_device.h"
#include "ops/collective/collective.h"
#include "ops/linear/linear_activation.h"
#include "support/tape_pass.h"
#include "tensor/host_copy.h"
#include "train/memory_policy.h"

namespace ingot::test::pairs_emulated_test {

constexpr int64_t kRows = 8, kWidth = 16;

class PairsOnTheTape : public ::testing::Test {
 protected:
  PairsOnTheTape() { set_emulation({.on = true, .seed = 2, .mma = true}); }
  ~PairsOnTheTape() override {
    set_emulation({});
    set_kernel_policy(KernelPolicy::strict);
  }

  /// How often a kernel ran since the test began.
  int64_t launches(const char* kernel) { return emulated_launches()[kernel] - before_[kernel]; }

  std::vector<bf16> x_ = std::vector<bf16>(kRows * kWidth, to_bf16(0.5f)),
                    w_ = std::vector<bf16>(kWidth * kWidth, to_bf16(0.25f));
  const ActivationAttr attr_{ActivationKind::gelu, DType::bf16};
  std::map<std::string, int64_t> before_ = emulated_launches();
};

/// Which ops ran.
class Runs final : public TapeObserver {
 public:
  void ran(const OpRun& r) override {
    EXPECT_GE(r.begin, end);
    EXPECT_GE(r.end, r.begin);
    end = r.end;
    ops.emplace_back(r.op.name);
    flops.push_back(r.flops);
  }
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}
  std::vector<std::string> ops;
  std::vector<double> flops;
  double end = 0;
};

TEST_F(PairsOnTheTape, AreTwoOpsToThoseWhoLook) {
  HeapArena arena(sim_device());
  Runs runs;
  TapeProfile profile;
  Tape tape(arena,
            {.device = DeviceKind::sim, .copies_leaves = true, .observer = &runs, .profile = &profile});
  linear_activation(tape, attr_, tape.leaf(Tensor::of(x_.data(), {kRows, kWidth})),
                    tape.leaf(Tensor::of(w_.data(), {kWidth, kWidth})));
  EXPECT_EQ(launches("mma_product"), 1);
  EXPECT_EQ(launches("activation_forward"), 0);
  EXPECT_EQ(runs.ops, (std::vector<std::string>{"linear", "activation"}));
  EXPECT_EQ(runs.flops, (std::vector<double>{2.0 * kRows * kWidth * kWidth, 10.0 * kRows * kWidth}));
  EXPECT_EQ(profile["linear"].calls, 1);
  EXPECT_EQ(profile["activation"].calls, 1);
  EXPECT_GT(profile["linear"].seconds[0], profile["activation"].seconds[0]);
  set_kernel_policy(KernelPolicy::reference);
  linear_activation(tape, attr_, tape.leaf(Tensor::of(x_.data(), {kRows, kWidth})),
                    tape.leaf(Tensor::of(w_.data(), {kWidth, kWidth})));
  EXPECT_EQ(launches("mma_product"), 1) << "the policy asked for the references";
}

TEST_F(PairsOnTheTape, AreRecomputedOneByOne) {
  const auto model = small_model("gpt2", Precision::bf16());
  const auto gradients = [&](const SlotPolicy* policy) {
    HeapArena arena(sim_device());
    return pass(*model, {.device = DeviceKind::sim, .policy = policy}, HeadMode::store, &arena).gradients;
  };
  const auto kept = gradients(nullptr);
  EXPECT_EQ(launches("activation_forward"), 0);
  for (const char* what : {"activation", "linear", "mlp/"}) {
    const NamedPolicy policy({what});
    EXPECT_TRUE(kept == gradients(&policy)) << what;
  }
  EXPECT_EQ(launches("activation_forward"), 2 * model->config().layers) << "of one op, and of all of an MLP";
}

TEST_F(PairsOnTheTape, RunOneAfterTheOtherWhereRowsAreToArrive) {
  for (int64_t i = 0; i < kRows * kWidth; ++i)
    x_[static_cast<size_t>(i)] = to_bf16(0.01f * static_cast<float>(i - 50));
  std::vector<float> whole;
  const auto values = [&](Tape& tape, const Value& x) {
    const HostCopy y(
        linear_activation(tape, attr_, x, tape.leaf(Tensor::of(w_.data(), {kWidth, kWidth}))).tensor());
    std::vector<float> floats;
    for (int64_t i = 0; i < kRows * kWidth; ++i) floats.push_back(to_float(y.as<bf16>()[i]));
    return floats;
  };
  const TapeOptions options{.device = DeviceKind::sim, .copies_leaves = true, .record = false};
  {
    HeapArena arena(sim_device());
    Tape tape(arena, options);
    whole = values(tape, tape.leaf(Tensor::of(x_.data(), {kRows, kWidth})));
  }
  EXPECT_EQ(launches("activation_forward"), 0);
  run_ranks(2, [&](ThreadRank& self) {
    HeapArena arena(sim_device());
    Tape tape(arena, options);
    const auto group = self.group("tensor", {0, 1});
    bf16* const own = x_.data() + self.rank() * kRows / 2 * kWidth;
    const Value mine = tape.leaf(Tensor::of(own, {kRows / 2, kWidth}));
    EXPECT_EQ(values(tape, all_gather_rows(tape, group.get(), mine)), whole);
  });
  EXPECT_EQ(launches("activation_forward"), 2);
  EXPECT_EQ(launches("mma_product"), 1 + 2 * 2) << "of the own rows, and of the other rank's";
}

}  // namespace ingot::test::pairs_emulated_test
