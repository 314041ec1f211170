// Recipes: every file is readable; the dry runs of the full recipes of published models print the published
// numbers; their small versions have the same phases and run (here a few steps on a small text).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "models/presets.h"
#include "post/register.h"
#include "report/metrics.h"
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
    if (entry.path().filename().string().starts_with("guard-")) continue;  // tests/guard reads these
    EXPECT_NO_THROW(load_recipe(entry.path().string(), {})) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 11);
}

TEST(Recipes, FullOnesPrintTheSourcesNumbers) {
  register_post();
  const std::pair<const char*, std::vector<const char*>> published[] = {
      {"zaya1",
       {"8,840,488,784", "754M without embedding", "476,837 steps", "(16,777,216) = 8.00T", "238,419 steps",
        "= 4.00T", "4096 sequences x 4096 tokens", "x 32768 tokens (30,015,488)", "lr 0.0006 to",
        "to 0.0002 (cosine)", "lr 0.0002 to 0.00015 (cosine)", "72.93 GB", "90.61 GB"}},
      {"zaya1-sft",
       {"22,085 steps of 228 sequences x 131072 tokens (29,884,416) = 660B", "lr 2e-05 to 2e-06 (cosine)"}},
      {"zaya1-8b",
       {"sft: 22,085 steps of 228 sequences x 131072 tokens (29,884,416) = 660B",
        "116 steps of 128 x 16 replies of at most 65,536 tokens, in rows of 131,072; lr 1e-05 to 1e-05 "
        "(constant)",
        "116 steps of 128 x 16 replies of at most 81,920 tokens",
        "400 steps of 128 x 16 replies",
        "384 steps of 128 x 16 replies",
        "464 steps of 128 x 16 replies",
        "all of kind rl: 232 + 400 + 384 + 464 + 384 = 1,864 steps",
        "prompts: 29,696 of 84,604 rows in 3 files, 0.35 epochs",
        "warmup-puzzles.jsonl: 54.4 %, 46,025 rows",
        "prompts: 51,200 new problems of 20 environments",
        "prompts: 49,152 of 18,656 rows in 4 files, 2.63 epochs",
        "prompts: 59,392 of 12,092 rows in 4 files, 4.91 epochs",
        "math-candidates-2.jsonl: 19.4 %",
        "prompts: 49,152 of 80,000 rows in 1 file, 0.61 epochs",
        "routes of a reply 3.3 MB, not kept",
        "237,568 replies, at most 19.5B tokens",
        "PFLOP in training",
        "PFLOP in sampling",
        "sampling: up to 64.0 GiB of keys and values",
        "activations "}},
      {"smollm3",
       {"its source says 1.1T by stage, 1T by the total (11T, after 8T and 2T) tokens; these steps make "
        "1.10T",
        "3,075,098,624", "(2,359,296) = 8.00T", "(2,359,296) = 2.00T", "(2,359,296) = 1.10T",
        "192 micro-batches of 3", "65536 tokens (2,359,296) = 50.0B", "lr 0.0002"}},
      {"ablation-1b",
       {"1,235,814,400", "20,000 steps of 384 sequences x 4096 tokens (1,572,864) = 31.5B",
        "lr 0.0005 to 5e-05 (cosine)", "16 micro-batches of 3",
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
    EXPECT_EQ(plan.text.find("of sampling"), std::string::npos) << "said once, for the phase\n" << plan.text;
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

/// What [ZAYA1-8B] says of all its stages of reinforcement learning (section IV-B1).
void expect_spine(const Recipe& recipe) {
  for (const PhaseConfig& p : recipe.phases) {
    if (!p.rl) continue;
    EXPECT_EQ(p.rl->loss.kind, PolicyLossKind::dppo) << p.name;
    EXPECT_EQ(p.rl->loss.aggregation, Aggregation::constant) << p.name;
    EXPECT_EQ(p.rl->loss.constant, recipe.phases[2].rl->max_tokens) << p.name;
    EXPECT_EQ(p.rl->loss.delta, 0.1) << p.name;
    EXPECT_EQ(p.rl->samples, 16) << p.name;
    EXPECT_TRUE(p.rl->need_signal && p.freeze_balance) << p.name;
    EXPECT_EQ(p.optimizer.momentum, 0) << p.name;
    const bool behaviour = p.name == "behaviour";
    EXPECT_EQ(p.rl->advantage, behaviour ? AdvantageKind::grpo : AdvantageKind::maxrl) << p.name;
    EXPECT_EQ(p.rl->length.reward > 0, !behaviour) << p.name;
    EXPECT_EQ(p.rl->curriculum.moves, p.name == "rlve") << p.name;
  }
}

TEST(Recipes, TheTwinOfPostTrainingHasItsCourseAndRuns) {
  register_post();
  const Recipe big = load_recipe(recipes() + "sources/zaya1-8b.toml", {});
  const std::string path = recipes() + "sources/zaya1-8b-small.toml";
  const Recipe small = load_recipe(path, {});
  expect_spine(big), expect_spine(small);
  ASSERT_EQ(big.phases.size(), small.phases.size());
  for (size_t i = 0; i < big.phases.size(); ++i) {
    const PhaseConfig &b = big.phases[i], &s = small.phases[i];
    EXPECT_EQ(b.kind, s.kind) << i;
    EXPECT_EQ(b.schedule, s.schedule) << i;
    EXPECT_EQ(b.continues, s.continues) << i;
    EXPECT_EQ(b.optimizer.state, s.optimizer.state) << i;
    if (!b.rl) continue;
    EXPECT_EQ(b.rl->length.reward, s.rl->length.reward) << i;
    EXPECT_EQ(b.rl->thinking, s.rl->thinking) << i;
    EXPECT_EQ(b.rl->curriculum.window, s.rl->curriculum.window) << i;
  }
  EXPECT_EQ(small.phases[4].rl->aggregation.share, 0.125);
  EXPECT_EQ(small.phases[5].rl->aggregation.share, 0.194);
  // Its rows as its first lines say, of fewer problems.
  const test::TempDir dir;
  fs::create_directories(dir / "data/zaya1-8b-small");
  std::string commands = "cd '" + (dir / "data/zaya1-8b-small") + "'";
  const std::string text = test::read_text(path), mark = "#   ingot environment export ";
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
    const std::string line = text.substr(at + 10, text.find('\n', at) - at - 10);
    const size_t rows = line.find("--rows ") + 7;
    commands +=
        fmt::format(" && '{}' {}60{}", INGOT_BINARY, line.substr(0, rows), line.substr(line.find(' ', rows)));
  }
  ASSERT_EQ(std::system((commands + " >'" + (dir / "output") + "' 2>&1").c_str()), 0)
      << test::read_text(dir / "output");
  std::string command =
      "cd '" + dir.path() + "' && '" + INGOT_BINARY + "' run '" + path +
      "' --tokenizer.vocab=290 --evaluation.tasks_limit=2 --phases.0.steps=3 --phases.0.warmup=0";
  for (size_t i = 1; i < small.phases.size(); ++i)
    command += fmt::format(
        " --phases.{0}.steps=1 --phases.{0}.rl.prompts=2 --phases.{0}.rl.need_signal=false "
        "--phases.{0}.rl.curriculum.calibrate=0",
        i);
  EXPECT_EQ(std::system((command + " >'" + (dir / "output") + "' 2>&1").c_str()), 0)
      << test::read_text(dir / "output");
  const std::vector<MetricRow> rows =
      read_metrics(real_file_system(), dir / "runs/zaya1-8b-small/metrics.jsonl");
  ASSERT_EQ(rows.size(), 9u);
  for (size_t i = 3; i < 9; ++i) EXPECT_EQ(*rows[i].scalar("rl/unequal"), 0) << i;
}

// A plan takes address space only, so any machine plans a model of 671 billion parameters.
TEST(Recipes, APlanIsOfTheRecipesRanks) {
  const auto plan = [](const std::vector<std::string>& options) {
    return plan_run(real_file_system(), load_recipe(recipes() + "sources/ablation-small.toml", options));
  };
  const Preflight alone = plan({}), two = plan({"--parallel.tensor=2"});
  EXPECT_LT(two.weight_bytes, 0.6 * static_cast<double>(alone.weight_bytes));
  EXPECT_NE(two.text.find("data 1 x tensor 2"), std::string::npos) << two.text;
  EXPECT_LT(plan({"--parallel.data=2", "--parallel.shard=optimizer"}).optimizer_bytes,
            0.6 * static_cast<double>(alone.optimizer_bytes));
}

// What a start would not find is named, and everything else planned.
TEST(Recipes, APlanNamesWhatIsMissing) {
  const Preflight plan = plan_run(real_file_system(),
                                  load_recipe(recipes() + "sources/smollm3.toml", {"--run.start_from=gone"}));
  ASSERT_GE(plan.missing.size(), 6u);
  EXPECT_NE(plan.missing[0].find("data/llama3-tokenizer"), std::string::npos) << plan.missing[0];
  EXPECT_NE(plan.missing[1].find("gone"), std::string::npos) << plan.missing[1];
  EXPECT_NE(plan.missing[2].find("data/web"), std::string::npos) << plan.missing[2];
  const test::ProcessResult r = test::run_process(
      {INGOT_BINARY, "run", recipes() + "sources/smollm3.toml", "--plan"}, {"INGOT_LOG=error"});
  EXPECT_EQ(r.exit_code, 1) << r.output;
  EXPECT_NE(r.output.find("would not find"), std::string::npos) << r.output;
  EXPECT_EQ(
      test::run_process({INGOT_BINARY, "run", recipes() + "sources/smollm3.toml", "--plan", "--without-data"})
          .exit_code,
      0);
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
