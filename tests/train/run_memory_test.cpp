// The memory that a run is predicted to need is the memory that it takes: weights of more than 1 GiB, dense
// and MoE, activations kept and recomputed, with the checkpoint's copy.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/log.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::run_memory_test {

/// A line of /proc/self/status in bytes.
int64_t status_bytes(const std::string& name) {
  std::istringstream status(read_text("/proc/self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.rfind(name + ":", 0) == 0) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  return -1;
}

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

enum class Activations { kept, recomputed, offloaded };

std::string recipe_of(const TempDir& folder, bool moe, Activations activations, bool muon) {
  std::string text = fmt::format(
      "[run]\nfolder = \"{0}/run\"\n[tokenizer]\nkind = \"characters\"\n[data]\nfolder = \"{0}/data\"\n"
      "[[data.sources]]\nname = \"words\"\npath = \"{0}/text.txt\"\ndocuments = \"blank_line\"\n",
      folder.path());
  text += "[samples]\nprompts = [\"the \"]\ntokens = 1\n[optimizer]\nmatrices = \"" +
          std::string(muon ? "muon" : "adamw") + "\"\n";
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
  text += moe ? "preset = \"moe-small\"\nlayers = 8\nvocab = 32768\n[model.moe]\nexperts = 44\nhidden = "
                "1024\ntop_k = 2\n"
              : "preset = \"llama-small\"\nlayers = 30\nhidden = 10240\nvocab = 131072\n";
  return text;
}

void check(bool moe, Activations activations, bool muon = false) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(20000));
  write_text(folder / "recipe.toml", recipe_of(folder, moe, activations, muon));
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
  EXPECT_GE(weights, int64_t{1} << 30);
  const double allowed = std::max(64.0, 0.05 * mib(measured));
  EXPECT_NEAR(mib(predicted), mib(measured), allowed) << r.output;
}

/// Each case initialises and saves a model of 1 GiB: most of a minute.
bool long_tests() {
  return std::getenv("INGOT_LONG_TESTS") != nullptr;
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
  check(true, Activations::kept, true);
}

}  // namespace ingot::test::run_memory_test
