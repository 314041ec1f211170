// A plan that grades itself: what counts as off, what a person reads of it, run.json as the only source of
// `ingot plan --accuracy`, and a run that records it.
#include "report/accuracy.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "optim/update_cost.h"
#include "plan/run_forecast.h"
#include "report/run_record.h"
#include "support/rl_run.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/run_layout.h"

namespace ingot::test::accuracy_test {

constexpr double kMiB = 1 << 20;

Prediction of(Predicted what, std::optional<double> predicted, std::optional<double> measured,
              std::string name = "") {
  return {.what = what,
          .of = std::move(name),
          .predicted = predicted,
          .measured = measured,
          .largest = "weights 1 GiB"};
}

TEST(Prediction, IsOffBeyondBothBoundsOfMemoryOrThatOfAStep) {
  EXPECT_FALSE(of(Predicted::memory, 100 * kMiB, 150 * kMiB).is_off()) << "50 % but not 64 MiB";
  EXPECT_FALSE(of(Predicted::memory, 10000 * kMiB, 10400 * kMiB).is_off()) << "400 MiB but not 5 %";
  EXPECT_TRUE(of(Predicted::memory, 1000 * kMiB, 1070 * kMiB).is_off());
  EXPECT_TRUE(of(Predicted::memory, 1000 * kMiB, 930 * kMiB).is_off()) << "less is off too";
  EXPECT_FALSE(of(Predicted::step, 1.0, 1.149).is_off());
  EXPECT_TRUE(of(Predicted::step, 1.0, 1.151).is_off());
  EXPECT_TRUE(of(Predicted::step, 1.0, 0.849).is_off());
  EXPECT_FALSE(of(Predicted::pause, 1.0, 9.0).is_off()) << "pauses have no bound";
  EXPECT_FALSE(of(Predicted::step, std::nullopt, 1.0).is_off());
  EXPECT_EQ(of(Predicted::step, 0.0, 1.0).ratio(), std::nullopt);
}

TEST(Prediction, OneWarningNamesTheFurthestOffAndItsLargestTerm) {
  std::vector<Prediction> all = {of(Predicted::memory, 1000 * kMiB, 1100 * kMiB, "rank 0"),
                                 of(Predicted::memory, 1000 * kMiB, 1500 * kMiB, "rank 1"),
                                 of(Predicted::step, 1.0, 1.2)};
  EXPECT_EQ(
      warning_of(all),
      "the plan was off: memory of rank 1 was 1.46 GiB, 50 % more than the predicted 1000 MiB, of which "
      "the most is weights 1 GiB");
  const std::vector<Prediction> worst = worst_of_each(all);
  ASSERT_EQ(worst.size(), 2u);
  EXPECT_EQ(worst[0].of, "rank 1 (furthest off of 2)");
  all.erase(all.begin() + 1);
  EXPECT_NE(warning_of(all).find("step was 1.2 s, 20 % more"), std::string::npos) << warning_of(all);
  all = {of(Predicted::memory, 1000 * kMiB, 1001 * kMiB)};
  EXPECT_EQ(warning_of(all), "");
}

TEST(Prediction, IsReadBackFromTheRecordOfARun) {
  const TempDir folder;
  FileSystem& fs = real_file_system();
  RunRecord record;
  record.set_config(parse_toml("a = 1\n", "test"));
  record_start(fs, folder.path(), record, {}, {});
  Prediction step = of(Predicted::step, 0.1, 0.25, "phase 'main'");
  Prediction write{.what = Predicted::write, .measured = 0.5, .missing = "nobody knows"};
  set_predictions(fs, folder.path(), {step, write});
  const std::vector<StartAccuracy> found = read_accuracy(fs, {folder.path()});
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].predictions.size(), 2u);
  EXPECT_EQ(found[0].predictions[0].of, "phase 'main'");
  EXPECT_EQ(found[0].predictions[0].ratio(), 2.5);
  EXPECT_EQ(found[0].predictions[1].predicted, std::nullopt);
  EXPECT_EQ(found[0].predictions[1].missing, "nobody knows");
  const std::string text = to_text(found);
  for (const char* part : {"step of phase 'main'", "2.500", "off; most of it: weights 1 GiB", "nobody knows",
                           "0 of 1 within their bounds"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const auto json = nlohmann::json::parse(to_json(found));
  EXPECT_EQ(json.at(0).at("what"), "step");
  EXPECT_EQ(json.at(0).at("off"), true);
  EXPECT_FALSE(json.at(1).contains("ratio"));
}

TEST(Prediction, DamagedOnesAreRefusedByName) {
  const auto refused = [](const char* predictions, const char* part) {
    try {
      RunRecord::parse(std::string("{\"format\": 3, \"starts\": [{\"predictions\": ") + predictions + "}]}",
                       "run.json");
      ADD_FAILURE() << "read " << predictions;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused("[{\"what\": \"colour\"}]", "colour");
  refused("[{\"predicted\": 1}]", "what");
  refused("[{\"what\": \"step\", \"predicted\": \"x\"}]", "run.json");
  refused("[7]", "run.json");
}

TEST(Accuracy, ARunThatMeasuredNothingIsNamed) {
  const TempDir folder;
  RunRecord record;
  record.set_config(parse_toml("a = 1\n", "test"));
  record_start(real_file_system(), folder.path(), record, {}, {});
  EXPECT_THROW(read_accuracy(real_file_system(), {folder.path()}), Error);
}

/// The program from its text to the table.
TEST(Accuracy, OfARunOfTheProgram) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(4000));
  write_text(folder / "recipe.toml", base_recipe(folder.path(), 32, "kind = \"characters\""));
  const ProcessResult run = run_process(
      {INGOT_BINARY, "run", folder / "recipe.toml", "--run.folder=" + folder / "run", "--phases.0.steps=8"});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("; step: "), std::string::npos) << run.output;
  const ProcessResult table = run_process({INGOT_BINARY, "plan", "--accuracy", folder / "run"});
  ASSERT_EQ(table.exit_code, 0) << table.output;
  EXPECT_NE(table.output.find("within their bounds"), std::string::npos) << table.output;
  const ProcessResult r = run_process({INGOT_BINARY, "plan", "--accuracy", folder / "run", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  std::map<std::string, nlohmann::json> found;
  for (const auto& entry : nlohmann::json::parse(r.output)) found[entry.at("what")] = entry;
  EXPECT_EQ(found.at("checkpoint").at("ratio"), 1);
  EXPECT_GT(found.at("memory").at("predicted"), 0);
  EXPECT_GT(found.at("step").at("predicted"), 0) << r.output;
  EXPECT_GT(found.at("step").at("measured"), 0);
  EXPECT_GT(found.at("checkpoint write").at("measured"), 0);
}

/// A step follows from the rates that were measured: twice as fast a machine takes half as long.
TEST(Forecast, FollowsTheMeasuredRates) {
  const Recipe recipe = recipe_from_tree(
      parse_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "test"),
      {"--model.preset=llama-small", "--model.vocab=512", "--phases.0.batch=4", "--phases.0.sequence=128"});
  const TrainEngine engine(on_paper(recipe), Backing::nothing);
  const auto seconds = [&](double times) {
    const std::vector<StepForecast> steps =
        forecast_steps(recipe, 1, plan_engine(engine, 100 * times, 10 * times));
    EXPECT_EQ(steps.size(), 1u);
    EXPECT_FALSE(steps[0].largest.empty());
    return steps[0].seconds;
  };
  const double one = seconds(1), two = seconds(2);
  EXPECT_GT(one, 0);
  EXPECT_NEAR(two, one / 2, 0.05 * one) << "but for the start of kernels";
  const std::vector<StepForecast> ranks = forecast_steps(recipe, 2, plan_engine(engine, 100, 10));
  EXPECT_EQ(ranks[0].seconds, 0);
  EXPECT_NE(ranks[0].missing.find("links between ranks"), std::string::npos);
}

/// Muon's products are f32 in a bf16 run too, at the rate of those.
TEST(Forecast, TheUpdateHasARateOfItsOwn) {
  const Recipe recipe =
      recipe_from_tree(parse_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "test"),
                       {"--model.preset=llama-small", "--model.vocab=512", "--phases.0.batch=4",
                        "--phases.0.sequence=128", "--run.precision=bf16"});
  const TrainEngine engine(on_paper(recipe), Backing::nothing);
  const auto seconds = [&](double f32_gflops) {
    Preflight measured = plan_engine(engine, 100, 10);
    measured.f32_gflops = f32_gflops;
    return forecast_steps(recipe, 1, measured)[0].seconds;
  };
  const double update = update_cost(engine.optimizer()).flops / (0.85 * 100e9);
  EXPECT_NEAR(seconds(50) - seconds(100), update, 1e-6 * update);
}

/// The step of a phase that samples holds the sampling: half the signal means twice the replies.
TEST(Forecast, HoldsWhatAPhaseSamples) {
  register_rl_environments();
  const TempDir folder;
  write_rl_rows(folder.path());
  const auto seconds = [&](const std::string& share) {
    const std::string more = "reply_tokens = 2\nsignal_share = " + share + "\n";
    write_text(folder / "recipe.toml", rl_recipe(folder.path(), "run", 4, more));
    Recipe recipe = load_recipe(folder / "recipe.toml", {});
    recipe.model.vocab = 300;
    const TrainEngine engine(on_paper(recipe), Backing::nothing);
    const std::vector<StepForecast> steps = forecast_steps(recipe, 1, plan_engine(engine, 100, 10));
    EXPECT_EQ(steps.at(1).missing, "");
    return steps.at(1).seconds;
  };
  const double all = seconds("1"), half = seconds("0.5"), quarter = seconds("0.25");
  EXPECT_GT(half, all);
  EXPECT_NEAR(quarter - half, 2 * (half - all), 1e-9 * quarter);
}

}  // namespace ingot::test::accuracy_test
