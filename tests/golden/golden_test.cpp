// Loss curves, bit for bit: 20 steps of a tiny model of each family on a small text. A change of any kernel,
// initial value, data order or optimizer shows here first; where the change is meant, INGOT_WRITE_GOLDEN=1
// writes the fixture anew. Every instruction set gives the same curve: the test runs each that this machine
// has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "device/cpu/isa.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test {
namespace {

/// The measured program: losses and gradient norms of a recipe, one line per step.
TEST(GoldenChild, DISABLED_Run) {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  if (recipe == nullptr) GTEST_SKIP() << "started by the tests of Golden";
  Trainer(real_file_system(), load_recipe(recipe, {}), StartMode::resume_or_start).run();
}

std::string recipe_of(const TempDir& folder, const std::string& family) {
  const std::string preset = family == "gpt2"    ? "gpt-10m"
                             : family == "llama" ? "llama-small"
                             : family == "moe"   ? "moe-small"
                                                 : "zaya-tiny";
  return fmt::format(
      "[run]\nfolder = \"{0}/run\"\nprecision = \"{3}\"\n[tokenizer]\nkind = \"characters\"\n[data]\nfolder "
      "= \"{0}/data\"\n"
      "[[data.sources]]\nname = \"words\"\npath = \"{1}\"\ndocuments = \"blank_line\"\n"
      "[samples]\nprompts = [\"the \"]\ntokens = 4\n[[stages]]\nsteps = 20\nbatch = 4\nmicro_batch = "
      "2\nsequence = 48\nwarmup = 3\n"
      "lr = 1e-2\n[model]\npreset = \"{2}\"\nwidth = 24\nlayers = 2\nheads = 4\nkv_heads = {4}\nhead_width = "
      "8\nhidden = 40\n"
      "context = 48\n[model.moe]\nhidden = 16\nrouter_width = 8\nbalance_rate = 1e-3\n",
      folder.path(), fixture("golden/text.txt"), preset, family == "llama" ? "bf16" : "f32",
      family == "gpt2" ? 4 : 2);
}

std::vector<std::string> curve(const std::string& family, const std::string& isa) {
  const TempDir folder;
  write_text(folder / "recipe.toml", recipe_of(folder, family));
  const ProcessResult r =
      run_process({"/proc/self/exe", "--gtest_filter=GoldenChild.*", "--gtest_also_run_disabled_tests"},
                  {"INGOT_TEST_RECIPE=" + folder / "recipe.toml", "INGOT_ISA=" + isa});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  return losses(folder / "run");
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, LossCurveIsTheSameOnEveryInstructionSet) {
  const std::string family = GetParam(), path = fixture("golden/" + family + ".txt");
  std::string expected = read_text(path);
  for (const Isa isa : kEveryIsa) {
    if (!cpu_has(isa)) continue;
    std::string found;
    for (const std::string& line : curve(family, isa_name(isa))) found += line + "\n";
    if (std::getenv("INGOT_WRITE_GOLDEN") != nullptr && isa == Isa::generic)
      write_text(path, expected = found);
    EXPECT_EQ(found, expected) << family << " on " << isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::Values("gpt2", "llama", "moe", "zaya"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ingot::test
