// Recipes: every file is readable; the dry runs of the full recipes of published models print the published
// numbers; their small versions have the same phases and run (here a few steps on a small text).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "models/presets.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/preflight.h"

namespace ingot::recipes_test {

namespace fs = std::filesystem;

std::string recipes() {
  return std::string(INGOT_SOURCE_DIR) + "/recipes/";
}

TEST(Recipes, AllRead) {
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(recipes())) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NO_THROW(load_recipe(entry.path().string(), {})) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 11);
}

TEST(Recipes, FullOnesPrintTheSourcesNumbers) {
  const std::pair<const char*, std::vector<const char*>> published[] = {
      {"zaya1",
       {"8,840,488,784", "754M without embedding", "476,837 steps", "(16,777,216) = 8.00T", "238,419 steps",
        "= 4.00T", "4096 sequences x 4096 tokens", "x 32768 tokens (30,015,488)", "lr 0.0006 to",
        "to 0.0002 (cosine)", "lr 0.0002 to 0.00015 (cosine)", "72.93 GB", "90.61 GB"}},
      {"smollm3",
       {"3,075,098,624", "(2,359,296) = 8.00T", "(2,359,296) = 2.00T", "(2,359,296) = 1.10T",
        "192 micro-batches of 3", "65536 tokens (2,359,296) = 50.0B", "lr 0.0002"}},
      {"ablation-1b",
       {"1,235,814,400", "20,000 steps of 384 sequences x 4096 tokens (1,572,864) = 31.5B",
        "lr 0.0005 to 5e-05 (cosine)", "128 micro-batches of 3"}},
      {"modded-nanogpt",
       {"275,598,388", "1,770 steps of 8 sequences x 49152 tokens (393,216)", "lr 0.05 to"}},
  };
  for (const auto& [name, numbers] : published) {
    const Preflight plan =
        plan_run(real_file_system(), load_recipe(recipes() + "sources/" + name + ".toml", {}));
    for (const char* number : numbers)
      EXPECT_NE(plan.text.find(number), std::string::npos) << number << "\n" << plan.text;
  }
}

TEST(Recipes, TwinsHaveTheSameCourseAndRun) {
  const test::TempDir dir;
  const std::string text = dir / "data/quickstart-text";
  fs::create_directories(text);
  std::string page;  // its first document is longer than any sequence
  for (int i = 0; i < 600; ++i) page += fmt::format("and then came number {}, ", i);
  page += "\n<|endoftext|>\n";
  for (int i = 0; i < 400; ++i)
    page += fmt::format(
        "In the beginning number {} was followed by {}, and the hacker counted on.\n<|endoftext|>\n", i,
        i * 7 % 31);
  for (const char* name : {"bible", "fortunes", "jargon"}) test::write_text(text + "/" + name + ".txt", page);
  for (const auto& [full, twin] : {std::pair<const char*, const char*>{"zaya1", "zaya1-small"},
                                   {"smollm3", "smollm3-small"},
                                   {"ablation-1b", "ablation-small"},
                                   {"modded-nanogpt", "modded-nanogpt-small"}}) {
    const Recipe big = load_recipe(recipes() + "sources/" + full + ".toml", {});
    const std::string path = recipes() + "sources/" + twin + ".toml";
    const Recipe small = load_recipe(path, {});
    ASSERT_EQ(big.phases.size(), small.phases.size()) << twin;
    for (size_t i = 0; i < big.phases.size(); ++i) {
      EXPECT_EQ(big.phases[i].schedule, small.phases[i].schedule) << twin << " phase " << i;
      EXPECT_EQ(big.phases[i].continues, small.phases[i].continues) << twin << " phase " << i;
      EXPECT_EQ(big.phases[i].min_lr_ratio, small.phases[i].min_lr_ratio) << twin << " phase " << i;
      EXPECT_EQ(big.phases[i].rope_theta, small.phases[i].rope_theta) << twin << " phase " << i;
      EXPECT_EQ(big.phases[i].window_growth > 0, small.phases[i].window_growth > 0) << twin << " phase " << i;
    }
    EXPECT_EQ(big.optimizer.groups.matrices, small.optimizer.groups.matrices);
    EXPECT_EQ(big.model.attention, small.model.attention);
    std::string command =
        "cd '" + dir.path() + "' && '" + INGOT_BINARY + "' run '" + path +
        "' --tokenizer.vocab=280 --evaluation.max_tokens=256 --samples.tokens=4 --run.folder=" + twin;
    for (size_t i = 0; i < small.phases.size(); ++i)
      command += fmt::format(
          " --phases.{0}.steps=2 --phases.{0}.warmup=0 --phases.{0}.batch=2 --phases.{0}.micro_batch=1", i);
    EXPECT_EQ(std::system((command + " >'" + (dir / "output") + "' 2>&1").c_str()), 0)
        << test::read_text(dir / "output");
  }
}

// A plan takes address space only, so any machine plans a model of 671 billion parameters.
TEST(Recipes, APlanIsOfOneRankAndSaysSo) {
  const auto warnings = [](const std::vector<std::string>& options) {
    return plan_run(real_file_system(), load_recipe(recipes() + "sources/ablation-small.toml", options))
        .warnings;
  };
  std::vector<std::string> expected = warnings({});
  expected.push_back("planned for one rank: [parallel] counts when the ranks have started");
  EXPECT_EQ(warnings({"--parallel.tensor=2"}), expected);
  EXPECT_EQ(warnings({"--parallel.data=4"}), expected);
}

TEST(Recipes, PlansTakeNoMemory) {
  Recipe r;
  r.model = model_preset("deepseek-v3");
  r.data.sources = {SourceConfig{.name = "text", .path = "text"}};
  r.phases[0].sequence = 4096;
  r.phases[0].batch = r.phases[0].micro_batch = 1;
  const Preflight plan = plan_run(real_file_system(), r);
  EXPECT_GT(plan.weight_bytes, int64_t{2} << 40);
  EXPECT_NE(plan.shortfall, "");
  EXPECT_NE(plan.text.find("671,026,404,352"), std::string::npos) << plan.text;
}

// One cosine over two phases equals the cosine of one phase of their length.
TEST(Recipes, APhaseContinuesTheScheduleBeforeIt) {
  Recipe r;
  PhaseConfig s;
  s.lr = 6e-4, s.schedule = ScheduleKind::cosine, s.warmup = 3, s.min_lr_ratio = 0.25;
  s.steps = 30;
  r.phases = {s};
  Recipe two = r;
  two.phases[0].steps = 20;
  two.phases.push_back({.steps = 10, .lr = 1, .continues = true});
  two.phases.push_back({.steps = 5, .lr = 1e-5, .schedule = ScheduleKind::constant, .warmup = 0});
  for (int64_t step = 0; step < 30; ++step)
    EXPECT_EQ(two.learning_rate(step < 20 ? 0 : 1, step % 20), r.learning_rate(0, step)) << step;
  EXPECT_EQ(two.learning_rate(2, 0), 1e-5);
}

}  // namespace ingot::recipes_test
