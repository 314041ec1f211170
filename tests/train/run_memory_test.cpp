// The memory that a run is predicted to need is the memory that it takes: weights of more than 512 MiB, or
// 1 GiB with INGOT_LONG_TESTS=1, dense and MoE, activations kept and recomputed, masters, gradients and
// moments in fp32 and bf16, with the checkpoint's copy.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/log.h"
#include "support/process_memory.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::run_memory_test {

/// The measured program: a process of its own, so that nothing but the trainer moves the peak.
TEST(MemoryChild, DISABLED_Run) {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  if (recipe == nullptr) GTEST_SKIP() << "started by the tests of Memory";
  const int64_t level = status_bytes("VmRSS");
  Trainer trainer(real_file_system(), load_recipe(recipe, {}), StartMode::resume_or_start);
  std::printf("%s\n", trainer.plan().text.c_str());
  trainer.run();
  std::printf("MEASURED %lld %lld %lld\n", static_cast<long long>(trainer.plan().predicted_bytes),
              static_cast<long long>(status_bytes("VmHWM") - level),
              static_cast<long long>(trainer.model().bytes()));
}

/// Each case initialises and saves its model: with 1 GiB most of a minute.
bool long_tests() {
  return std::getenv("INGOT_LONG_TESTS") != nullptr;
}

const char* const kAdamW = "matrices = \"adamw\"\n";
const char* const kHalfTheBytes =
    "matrices = \"adamw\"\nmaster = \"bf16_stochastic\"\ngradient = \"bf16\"\nfirst_moment = \"bf16\"\n"
    "second_moment = \"bf16_stochastic\"\n";

enum class Activations { kept, recomputed, offloaded };

std::string recipe_of(const TempDir& folder, bool moe, Activations activations,
                      const std::string& optimizer) {
  std::string text = fmt::format(
      "[run]\nfolder = \"{0}/run\"\nprecision = \"{1}\"\n[tokenizer]\nkind = \"characters\"\n[data]\nfolder "
      "= \"{0}/data\"\n"
      "[[data.sources]]\nname = \"words\"\npath = \"{0}/text.txt\"\ndocuments = \"blank_line\"\n",
      folder.path(), optimizer == kHalfTheBytes ? "bf16" : "f32");
  text += "[samples]\nprompts = [\"the \"]\ntokens = 1\n[optimizer]\n" + optimizer;
  text += "[[phases]]\nsteps = 1\nbatch = 2\nsequence = 128\nschedule = \"constant\"\nwarmup = 0\n";
  if (activations == Activations::offloaded)
    text +=
        "[memory]\nhead = \"recompute\"\nrecompute = [\"activation\", \"mlp/\", \"experts/\", "
        "\"dispatch/\"]\noffload = "
        "[\"add_norm\", \"attention/\"]\n";
  else if (activations == Activations::recomputed)
    text += "[memory]\nhead = \"recompute\"\nrecompute = [\"activation\", \"add_norm.h\"]\n";
  else
    text += "[memory]\nhead = \"store\"\n";
  text += "[model]\ncontext = 128\nwidth = 256\nheads = 4\nkv_heads = 2\ntied = true\n";
  text += moe ? fmt::format(
                    "preset = \"moe-small\"\nlayers = {}\nvocab = 32768\n[model.moe]\nexperts = 44\nhidden = "
                    "1024\ntop_k = 2\n",
                    long_tests() ? 8 : 4)
              : fmt::format("preset = \"llama-small\"\nlayers = {}\nhidden = 10240\nvocab = 131072\n",
                            long_tests() ? 30 : 13);
  return text;
}

void check(bool moe, Activations activations, const std::string& optimizer = kAdamW) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(20000));
  write_text(folder / "recipe.toml", recipe_of(folder, moe, activations, optimizer));
  const ProcessResult r =
      run_process({"/proc/self/exe", "--gtest_filter=MemoryChild.*", "--gtest_also_run_disabled_tests"},
                  {"INGOT_TEST_RECIPE=" + folder / "recipe.toml"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const size_t at = r.output.find("MEASURED ");
  ASSERT_NE(at, std::string::npos) << r.output;
  int64_t predicted = 0, measured = 0, weights = 0;
  std::istringstream(r.output.substr(at + 9)) >> predicted >> measured >> weights;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) * 0x1p-20; };
  std::printf("predicted %.1f MiB, measured %.1f MiB (%+.2f %%), weights %.1f MiB\n", mib(predicted),
              mib(measured), 100 * (mib(measured) / mib(predicted) - 1), mib(weights));
  const bool half = optimizer == kHalfTheBytes;
  EXPECT_GE(weights, int64_t{1} << (long_tests() ? 30 : 29) - half);
  const double allowed = std::max(64.0, 0.05 * mib(measured));
  EXPECT_NEAR(mib(predicted), mib(measured), allowed) << r.output;
}

TEST(Memory, DenseKept) {
  if (!long_tests()) GTEST_SKIP() << "set INGOT_LONG_TESTS=1";
  check(false, Activations::kept);
}
TEST(Memory, DenseRecomputed) {
  check(false, Activations::recomputed);
}
TEST(Memory, MoeKept) {
  check(true, Activations::kept);
}
TEST(Memory, MoeRecomputed) {
  if (!long_tests()) GTEST_SKIP() << "set INGOT_LONG_TESTS=1";
  check(true, Activations::recomputed);
}
TEST(Memory, DenseOffloaded) {
  if (!long_tests()) GTEST_SKIP() << "set INGOT_LONG_TESTS=1";
  check(false, Activations::offloaded);
}
TEST(Memory, MoeOffloaded) {
  if (!long_tests()) GTEST_SKIP() << "set INGOT_LONG_TESTS=1";
  check(true, Activations::offloaded);
}
TEST(Memory, MoeMuon) {
  if (!long_tests()) GTEST_SKIP() << "set INGOT_LONG_TESTS=1";
  check(true, Activations::kept, "matrices = \"muon\"\n");
}
TEST(Memory, DenseInHalfTheBytes) {
  check(false, Activations::recomputed, kHalfTheBytes);
}

}  // namespace ingot::test::run_memory_test
