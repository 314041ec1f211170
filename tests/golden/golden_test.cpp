// Loss curves, bit for bit: 20 steps of a tiny model of each family and option on a small text. A change of
// any kernel, initial value, data order or optimizer shows here first; if the change is intended,
// INGOT_WRITE_GOLDEN=1 rewrites the fixture. Every instruction set gives the same curve, so the test runs
// each that this machine has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <ranges>
#include <utility>

#include "device/simd/isa.h"
#include "golden/cases.h"
#include "support/interrupter.h"
#include "train/trainer.h"

namespace ingot::test::golden_test {

/// The program that the test runs: it records losses and gradient norms of a recipe's first steps.
TEST(GoldenChild, DISABLED_Run) {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  const char* steps = std::getenv("INGOT_TEST_STEPS");
  if (recipe == nullptr || steps == nullptr) GTEST_SKIP() << "started by the tests of Golden";
  Trainer trainer(real_file_system(), load_recipe(recipe, {}), StartMode::resume_or_start);
  Interrupter interrupter(std::atoi(steps));
  trainer.observe(&interrupter);
  trainer.run();
}

const Case& case_of(const std::string& name) {
  for (const Case& c : kCases)
    if (c.name == name) return c;
  throw Error("no case " + name);
}

constexpr int kAll = 1000;  ///< more steps than any case has

std::vector<std::string> curve(const std::string& family, const std::string& isa, int steps) {
  const TempDir folder;
  write_text(folder / "recipe.toml", recipe_of(folder.path(), case_of(family)));
  const ProcessResult r =
      run_process({"/proc/self/exe", "--gtest_filter=GoldenChild.*", "--gtest_also_run_disabled_tests"},
                  {"INGOT_TEST_RECIPE=" + folder / "recipe.toml", "INGOT_TEST_STEPS=" + std::to_string(steps),
                   "INGOT_ISA=" + isa});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  return losses(folder / "run");
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, LossCurveIsTheSameOnEveryInstructionSet) {
  const std::string family = GetParam(), path = fixture("golden/" + family + ".txt");
  std::string expected = read_text(path);
  bool write = std::getenv("INGOT_WRITE_GOLDEN") != nullptr;
  for (const Isa isa : kEveryIsa | std::views::reverse) {
    if (!isa_available(isa)) continue;
    // Generic code computes at a sixteenth of the speed: beside another, it takes the first steps.
    const bool few = isa == Isa::generic && isa_available(Isa::avx2);
    std::string found;
    int64_t steps = 0;
    for (const std::string& line : curve(family, isa_name(isa), few ? 4 : kAll))
      found += line + "\n", ++steps;
    if (std::exchange(write, false)) write_text(path, expected = found);
    EXPECT_EQ(found, few ? expected.substr(0, found.size()) : expected) << family << " on " << isa_name(isa);
    EXPECT_GE(steps, 4);
  }
}

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const Case& c : kCases) all.push_back(c.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(names()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace ingot::test::golden_test
