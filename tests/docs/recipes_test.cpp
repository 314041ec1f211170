// Recipes: every file is readable; the dry runs of the full recipes of published models print the published
// numbers; their small versions have the same phases and run (here a few steps on a small text).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "models/presets.h"
#include "post/register.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/engine.h"
#include "train/preflight.h"

namespace ingot::recipes_test {

namespace fs = std::filesystem;

std::string recipes() {
  return std::string(INGOT_SOURCE_DIR) + "/recipes/";
}

TEST(Recipes, AllRead) {
  register_post();
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
      {"zaya1-sft",
       {"22,085 steps of 228 sequences x 131072 tokens (29,884,416) = 660B", "lr 2e-05 to 2e-06 (cosine)"}},
      {"smollm3",
       {"its source says 1.1T by stage, 1T by the total (11T, after 8T and 2T) tokens; these steps make "
        "1.10T",
        "3,075,098,624", "(2,359,296) = 8.00T", "(2,359,296) = 2.00T", "(2,359,296) = 1.10T",
        "192 micro-batches of 3", "65536 tokens (2,359,296) = 50.0B", "lr 0.0002"}},
      {"ablation-1b",
       {"1,235,814,400", "20,000 steps of 384 sequences x 4096 tokens (1,572,864) = 31.5B",
        "lr 0.0005 to 5e-05 (cosine)", "128 micro-batches of 3",
        "its source says 45B in the text, 30B in its configuration's comment, 31.46B by its steps and batch "
        "tokens; these steps make 31.5B"}},
      {"modded-nanogpt",
       {"275,598,388", "1,770 steps of 8 sequences x 49152 tokens (393,216)", "lr 0.05 to",
        "target: validation loss of fineweb at most 3.28"}},
  };
  for (const auto& [name, numbers] : published) {
    const Preflight plan =
        plan_run(real_file_system(), load_recipe(recipes() + "sources/" + name + ".toml", {}));
    for (const char* number : numbers)
      EXPECT_NE(plan.text.find(number), std::string::npos) << number << "\n" << plan.text;
  }
}

TEST(Recipes, FullOnesHaveTheSourcesLayouts) {
  const auto parallel = [](const char* name) {
    return load_recipe(recipes() + "sources/" + name + ".toml", {}).parallel;
  };
  EXPECT_EQ(parallel("zaya1").shard, ShardLevel::optimizer);
  EXPECT_EQ(parallel("zaya1-sft").shard, ShardLevel::optimizer);
  EXPECT_EQ(parallel("zaya1-sft").context, 8);
  EXPECT_EQ(parallel("zaya1-sft").context_form, ContextForm::gather);
  EXPECT_EQ(parallel("smollm3").tensor, 2);
  EXPECT_EQ(parallel("smollm3").shard, ShardLevel::none);
  EXPECT_EQ(parallel("ablation-1b").data, 8);
  const Recipe sft = load_recipe(recipes() + "sources/zaya1-sft.toml", {});
  EXPECT_EQ(sft.rope_theta_of(0), 5e6);
  EXPECT_EQ(sft.data.sampling, data::SampleMode::best_fit);
  EXPECT_EQ(sft.data.sources[0].prompt_field, "prompt");
}

/// Rates, momentum and factors of the script at the steps where its course turns ([modded-nanogpt], record
/// 23).
TEST(Recipes, TheRecordsCourseIsTheScripts) {
  Recipe recipe = load_recipe(recipes() + "sources/modded-nanogpt.toml", {});
  const double rates[] = {0.05, 0.05, 0.05, 0.005}, momenta[] = {0.85, 0.95, 0.95, 0.95};
  const int64_t steps[] = {0, 300, 1062, 1770}, windows[] = {128, 384, 1152, 1792};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(recipe.learning_rate(0, steps[i]), rates[i], 1e-12) << steps[i];
    EXPECT_NEAR(muon_momentum(recipe.optimizer.muon, recipe.total_steps(), steps[i]), momenta[i], 1e-12);
    EXPECT_EQ(recipe.window_at(0, steps[i]), windows[i]) << steps[i];
  }
  EXPECT_NEAR(recipe.learning_rate(0, 1416), 0.05 * 0.55, 1e-12) << "half of the way down";
  if (recipe.model.vocab == 0) recipe.model.vocab = 50257;
  const TrainEngine engine(recipe, Backing::nothing);
  const Optimizer& optimizer = engine.optimizer();
  std::map<std::string, int> seen;
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    const std::string& name = optimizer.params()[i].name;
    const ParamGroup& group = optimizer.groups()[i];
    const bool embedding = name.find("embed") != std::string::npos,
               scalar = name.find("_scale") != std::string::npos, head = name == "lm_head.weight";
    const double rate = embedding ? 0.6 : scalar ? 0.04 : head ? 0.22 : 0.05;
    EXPECT_NEAR(0.05 * group.lr_multiplier, rate, 1e-12) << name;
    EXPECT_EQ(group.optimizer, embedding || scalar || head ? "adamw" : "muon") << name;
    EXPECT_EQ(optimizer.config().weight_decay * group.decay_multiplier, 0) << name;
    ++seen[embedding ? "embedding" : scalar ? "scalar" : head ? "head" : "matrix"];
  }
  EXPECT_EQ(seen.at("embedding"), 4);
  EXPECT_EQ(seen.at("head"), 1);
  EXPECT_EQ(seen.at("matrix"), 11 * 2 + 12 * 2);
  EXPECT_GT(seen.at("scalar"), 0);
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
