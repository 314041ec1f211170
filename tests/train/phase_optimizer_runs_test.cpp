// What a phase changes of the optimizer and of the routers' biases, and that a run with such phases resumes
// bit for bit.
#include <gtest/gtest.h>

#include "support/first_step.h"
#include "support/tiny_run.h"

namespace ingot::test::phase_optimizer_runs_test {
namespace {

class PhaseOptimizer : public FirstStepTest {
 protected:
  PhaseOptimizer() { write_text(folder_ / "text.txt", tiny_text(3000)); }
  void run(const std::string& name, std::vector<std::string> more, int64_t stop = 0) {
    write_text(folder_ / (name + ".toml"),
               tiny_recipe(folder_ / name, folder_ / "data", folder_ / "text.txt"));
    more.insert(more.end(), {"--phases.0.steps=5", "--phases.1.steps=4", "--checkpoint.keep_last=0",
                             "--samples.prompts=[]", "--evaluation.every=0"});
    const Recipe r = load_recipe(folder_ / (name + ".toml"), more);
    FirstStep observer(stop > 0 ? stop : 1000);
    Trainer trainer(real_file_system(), r, StartMode::resume_or_start);
    trainer.observe(&observer);
    EXPECT_EQ(trainer.run().finished, stop == 0);
  }
  std::vector<std::string> curve(const std::string& name) const { return losses(folder_ / name); }
};

const std::vector<std::string> kChanged = {
    "--phases.1.optimizer.state=reset",      "--phases.1.optimizer.momentum=0",
    "--phases.1.optimizer.beta1=0.5",        "--phases.1.optimizer.beta2=0.9",
    "--phases.1.optimizer.clip=0.5",         "--phases.1.optimizer.muon_lr_multiplier=0.5",
    "--phases.1.optimizer.weight_decay=0.3", "--phases.1.freeze_balance=true"};

TEST_F(PhaseOptimizer, EverySettingHasItsEffectInItsPhaseOnly) {
  run("plain", {});
  const std::vector<std::string> plain = curve("plain");
  ASSERT_EQ(plain.size(), 9u);
  std::set<std::vector<std::string>> curves = {plain};
  for (const std::string& setting : kChanged) {
    const std::string name = "run" + std::to_string(curves.size());
    run(name, {setting});
    const std::vector<std::string> changed = curve(name);
    ASSERT_EQ(changed.size(), 9u);
    for (size_t i = 0; i < 6; ++i)
      EXPECT_EQ(changed[i], plain[i]) << setting;  // the sixth loss is of weights before
    EXPECT_TRUE(curves.insert(changed).second) << setting;
  }
}

TEST_F(PhaseOptimizer, FrozenBiasesStay) {
  run("frozen", {"--phases.1.freeze_balance=true", "--checkpoint.every=1"});
  std::map<std::string, std::string> end = checkpoint_content(folder_ / "frozen");
  std::filesystem::remove_all(folder_ / "frozen/checkpoints/step-00000009");
  std::filesystem::remove_all(folder_ / "frozen/checkpoints/step-00000008");
  std::filesystem::remove_all(folder_ / "frozen/checkpoints/step-00000007");
  std::filesystem::remove_all(folder_ / "frozen/checkpoints/step-00000006");
  const std::map<std::string, std::string> begin = checkpoint_content(folder_ / "frozen");
  int biases = 0;
  for (int64_t layer = 0; layer < 2; ++layer) {
    const auto found = begin.find(Model::router_bias_name(layer));
    if (found == begin.end()) continue;
    EXPECT_EQ(end.at(found->first), found->second) << found->first;
    ++biases;
  }
  EXPECT_GT(biases, 0);
}

TEST_F(PhaseOptimizer, ResumesInsideAndBefore) {
  run("whole", kChanged);
  for (const int64_t stop : {5, 7}) {
    const std::string name = "stopped" + std::to_string(stop);
    run(name, kChanged, stop);
    run(name, kChanged);
    EXPECT_EQ(difference(folder_ / "whole", folder_ / name), "") << stop;
  }
}

TEST_F(PhaseOptimizer, AMomentumWithoutStateIsRefused) {
  try {
    run("refused", {"--optimizer.muon.momentum=0", "--phases.1.optimizer.momentum=0.9"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("has no state for the momentum"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ingot::test::phase_optimizer_runs_test
