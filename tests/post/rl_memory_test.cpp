// The memory that a run with a phase of reinforcement learning is predicted to need is the memory that it
// takes: the engine's cache and calls, replies, the reference, and the steps' passes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "support/process_memory.h"
#include "support/rl_run.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::rl_memory_test {

/// The measured program: a process of its own, so that nothing but the trainer moves the peak.
TEST(RlMemoryChild, DISABLED_Run) {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  if (recipe == nullptr) GTEST_SKIP() << "started by the tests of RlMemory";
  register_rl_environments();
  const int64_t level = status_bytes("VmRSS");
  Trainer trainer(real_file_system(), load_recipe(recipe, {}), StartMode::resume_or_start);
  std::printf("%s\n", trainer.plan().text.c_str());
  trainer.run();
  std::printf("MEASURED %lld %lld %lld\n", static_cast<long long>(trainer.plan().predicted_bytes),
              static_cast<long long>(status_bytes("VmHWM") - level),
              static_cast<long long>(trainer.plan().source_bytes));
}

void check(const std::string& asked, const std::string& more, int64_t least_of_sampling) {
  const TempDir folder;
  write_rl_rows(folder.path());
  std::string text = rl_recipe(folder.path(), "run", 2, more);
  const size_t begin = text.find("width = 32"), end = text.find("context = 64");
  text.replace(begin, end - begin,
               "width = 256\nlayers = 6\nheads = 8\nkv_heads = 8\nhead_width = 64\nhidden = 512\n");
  const std::string long_tuning = "steps = 40\n";
  text.replace(text.find(long_tuning), long_tuning.size(), "steps = 5\n");
  const std::string usual = "prompts = 6\nsamples = 8\n";
  text.replace(text.find(usual), usual.size(), asked);
  write_text(folder / "recipe.toml", text);
  const ProcessResult r =
      run_process({"/proc/self/exe", "--gtest_filter=RlMemoryChild.*", "--gtest_also_run_disabled_tests"},
                  {"INGOT_TEST_RECIPE=" + folder / "recipe.toml"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const size_t at = r.output.find("MEASURED ");
  ASSERT_NE(at, std::string::npos) << r.output;
  int64_t predicted = 0, measured = 0, sampling = 0;
  std::istringstream(r.output.substr(at + 9)) >> predicted >> measured >> sampling;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) * 0x1p-20; };
  std::printf("predicted %.1f MiB, measured %.1f MiB (%+.2f %%), of them sampling %.1f MiB\n", mib(predicted),
              mib(measured), 100 * (mib(measured) / mib(predicted) - 1), mib(sampling));
  EXPECT_GE(mib(sampling), static_cast<double>(least_of_sampling)) << "the test would not see it missing";
  EXPECT_NEAR(mib(predicted), mib(measured), std::max(64.0, 0.05 * mib(measured))) << r.output;
}

TEST(RlMemory, RepliesAndTheirCache) {
  check("prompts = 12\nsamples = 12\n", "need_signal = false\n", 200);
}
TEST(RlMemory, WithAReference) {
  check("prompts = 8\nsamples = 8\n", "need_signal = false\nkl_reference = 0.1\n", 100);
}

}  // namespace ingot::test::rl_memory_test
