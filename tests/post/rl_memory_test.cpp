// The memory that a run with a phase of reinforcement learning is predicted to need is the memory that it
// takes: the engine's cache and calls, replies, the reference, and the steps' passes.
#include <gtest/gtest.h>

#include "support/measured_run.h"
#include "support/rl_run.h"
#include "support/support.h"

namespace ingot::test::rl_memory_test {

TEST(RlMemoryChild, DISABLED_Run) {
  register_rl_environments();
  run_measured();
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
  const MeasuredRun r = measure_run(folder / "recipe.toml", "RlMemoryChild");
  EXPECT_GE(r.sampling, least_of_sampling << 20) << "the test would not see it missing";
  expect_as_predicted(r);
}

TEST(RlMemory, RepliesAndTheirCache) {
  check("prompts = 12\nsamples = 12\n", "need_signal = false\n", 200);
}
TEST(RlMemory, WithAReference) {
  check("prompts = 8\nsamples = 8\n", "need_signal = false\nkl_reference = 0.1\n", 100);
}

}  // namespace ingot::test::rl_memory_test
