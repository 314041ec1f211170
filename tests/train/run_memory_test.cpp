// The memory that a run is predicted to need is the memory that it takes: weights of more than 512 MiB, or
// 1 GiB with INGOT_LONG_TESTS=1, dense and MoE, activations kept, recomputed and in FP8, masters, gradients
// and moments in fp32 and bf16, with the checkpoint's copy.
#include <gtest/gtest.h>

#include "support/long_tests.h"
#include "support/measured_run.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::run_memory_test {

TEST(MemoryChild, DISABLED_Run) {
  run_measured();
}

const char* const kAdamW = "matrices = \"adamw\"\n";
const char* const kHalfTheBytes =
    "matrices = \"adamw\"\nmaster = \"bf16_stochastic\"\ngradient = \"bf16\"\nfirst_moment = \"bf16\"\n"
    "second_moment = \"bf16_stochastic\"\n";

enum class Activations { kept, recomputed, in_fp8, offloaded };

std::string recipe_of(const TempDir& folder, bool moe, Activations activations,
                      const std::string& optimizer) {
  std::string text = fmt::format(
      "[run]\nfolder = \"{0}/run\"\nprecision = \"{1}\"\n[tokenizer]\nkind = \"characters\"\n[data]\nfolder "
      "= \"{0}/data\"\n"
      "[[data.sources]]\nname = \"words\"\npath = \"{0}/text.txt\"\ndocuments = \"blank_line\"\n",
      folder.path(), optimizer == kHalfTheBytes ? "bf16" : "f32");
  text += "[samples]\nprompts = [\"the \"]\ntokens = 1\n[optimizer]\n" + optimizer;
  // Two steps: moments come into memory with the first update, when what is in flight in backward is gone.
  text += "[[phases]]\nsteps = 2\nbatch = 2\nsequence = 128\nschedule = \"constant\"\nwarmup = 0\n";
  if (activations == Activations::offloaded)
    text +=
        "[memory]\nhead = \"recompute\"\nrecompute = [\"activation\", \"mlp/\", \"experts/\", "
        "\"dispatch/\"]\noffload = "
        "[\"add_norm\", \"attention/\"]\n";
  else if (activations == Activations::in_fp8)
    text +=
        "[memory]\nhead = \"recompute\"\nfp8 = [\"activation\", \"add_norm.h\", \"attention/\", \"mlp/\"]\n";
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
  const MeasuredRun r = measure_run(folder / "recipe.toml", "MemoryChild");
  // 512 MiB, or 1 GiB: each case initialises and saves its model, with 1 GiB most of a minute.
  EXPECT_GE(r.weights, int64_t{1} << ((long_tests() ? 30 : 29) - (optimizer == kHalfTheBytes)));
  expect_as_predicted(r);
}

TEST(Memory, DenseKept) {
  INGOT_LONG_TEST("minutes");
  check(false, Activations::kept);
}
TEST(Memory, DenseRecomputed) {
  check(false, Activations::recomputed);
}
TEST(Memory, MoeKept) {
  check(true, Activations::kept);
}
TEST(Memory, MoeRecomputed) {
  INGOT_LONG_TEST("minutes");
  check(true, Activations::recomputed);
}
TEST(Memory, DenseInFp8) {
  INGOT_LONG_TEST("minutes");
  check(false, Activations::in_fp8);
}
TEST(Memory, DenseOffloaded) {
  INGOT_LONG_TEST("minutes");
  check(false, Activations::offloaded);
}
TEST(Memory, MoeOffloaded) {
  INGOT_LONG_TEST("minutes");
  check(true, Activations::offloaded);
}
TEST(Memory, MoeMuon) {
  INGOT_LONG_TEST("minutes");
  check(true, Activations::kept, "matrices = \"muon\"\n");
}
TEST(Memory, DenseInHalfTheBytes) {
  check(false, Activations::recomputed, kHalfTheBytes);
}

}  // namespace ingot::test::run_memory_test
