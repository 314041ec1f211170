// `ingot plan` as people type it: text, JSON, clusters, what-ifs, and what it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/browser.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::plan_command_test {

const std::string kRecipe = std::string(INGOT_SOURCE_DIR) + "/recipes/sources/smollm3.toml";
const std::string kCluster = std::string(INGOT_SOURCE_DIR) + "/clusters/h100-ib.toml";

ProcessResult plan(const std::vector<std::string>& more) {
  std::vector<std::string> words = {INGOT_BINARY,          "plan",    kRecipe, "--phase", "stage 1",
                                    "--phases.0.batch=24", "--ranks", "16"};
  words.insert(words.end(), more.begin(), more.end());
  return run_process(words, {"INGOT_LOG=error"});
}

nlohmann::json json_of(const std::vector<std::string>& more) {
  std::vector<std::string> words = more;
  words.push_back("--json");
  const ProcessResult r = plan(words);
  EXPECT_EQ(r.exit_code, 0) << r.output;
  return nlohmann::json::parse(r.output);
}

TEST(PlanCommand, PrintsEveryKindOfRankAndOneInFull) {
  const ProcessResult r = plan({"--rank", "3"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  for (const char* part :
       {"3,075,098,624", "16 = data 8 x tensor 2", "memory by rank", "rank ", "activations"})
    EXPECT_NE(r.output.find(part), std::string::npos) << part << "\n" << r.output;
}

TEST(PlanCommand, NumbersAsJson) {
  const auto plan = json_of({});
  EXPECT_EQ(plan.at("ranks"), 16);
  EXPECT_EQ(plan.at("tokens_per_step"), 24 * 4096);
  size_t ranks = 0;
  for (const auto& c : plan.at("classes")) {
    ranks += c.at("ranks").size();
    EXPECT_GT(c.at("plan").at("memory").at("total").get<int64_t>(), 0);
  }
  EXPECT_EQ(ranks, 16u);
}

TEST(PlanCommand, AdviceIsFieldsThatCanBeTyped) {
  const std::vector<std::string> layout = {"--cluster", kCluster, "--parallel.tensor=4"};
  std::vector<std::string> words = layout;
  words.push_back("--advice");
  const auto advice = json_of(words);
  EXPECT_GT(advice.at("limits").at("products").get<double>(), 0);
  ASSERT_FALSE(advice.at("faster").empty());
  const auto& first = advice.at("faster")[0];
  words = layout;
  for (const auto& field : first.at("fields")) words.push_back(field);
  const double step = json_of(words).at("time").at("step_seconds");
  EXPECT_NEAR(step, first.at("step_seconds").get<double>(), 1e-6 * step);
}

TEST(PlanCommand, TimeOnAClusterAndWhatIfs) {
  const auto seconds = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--cluster", kCluster};
    words.insert(words.end(), more.begin(), more.end());
    return json_of(words).at("time").at("step_seconds").get<double>();
  };
  const double step = seconds({});
  EXPECT_GT(step, 0);
  EXPECT_GT(seconds({"--slow", "0:1.5"}), 1.2 * step);
  EXPECT_GE(seconds({"--links", "0.1"}), step);
  EXPECT_LT(seconds({"--type", "f8"}), step);
}

TEST(PlanCommand, ABudgetSaysDaysAndCheckpoints) {
  const ProcessResult r = plan({"--cluster", kCluster, "--budget"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  for (const char* part : {"device hours at a goodput of", "training stops for", "days of steps", "reads"})
    EXPECT_NE(r.output.find(part), std::string::npos) << part << "\n" << r.output;
}

/// The page has the parts of the text, drawn, and needs no network.
TEST(PlanCommand, WritesAPage) {
  const TempDir folder;
  const ProcessResult r = plan({"--cluster", kCluster, "--budget", "--parallel.pipeline=2",
                                "--phases.0.micro_batch=1", "--html", folder / "plan.html"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  const std::string page = read_text(folder / "plan.html");
  for (const char* part : {"Memory of a rank", "Activations at their peak", "A step by purpose", "products",
                           "stage 1", "backward of micro-batch", "device hours", "memory by rank", "</html>"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  for (const char* outside : {"src=", "href=", "url(h", "@import", "https:"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  const ProcessResult none = plan({"--html", folder / "memory.html"});
  EXPECT_EQ(none.exit_code, 0) << none.output;
  EXPECT_EQ(read_text(folder / "memory.html").find("A step by purpose"), std::string::npos);
}

/// On a phone and on a desktop: nothing beyond the edge, every pass drawn, no error in the page.
TEST(PlanCommand, ItsPageIsReadable) {
  if (Browser::program().empty()) GTEST_SKIP() << "no Chromium here: scripts/setup --tests installs it";
  const TempDir folder;
  const ProcessResult r = plan({"--cluster", kCluster, "--budget", "--parallel.pipeline=2",
                                "--phases.0.micro_batch=1", "--html", folder / "plan.html"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const int width : {400, 1280}) {
    Browser browser(folder, width, 900);
    browser.open("file://" + folder / "plan.html");
    // A browser's window is not as narrow as asked for.
    EXPECT_TRUE(browser.value("document.documentElement.scrollWidth <= innerWidth")) << width;
    EXPECT_GT(browser.value("document.querySelectorAll('.heat rect').length"), 2 * 6 * 2);
    EXPECT_GT(browser.value("document.querySelectorAll('.bars i').length"), 8);
    EXPECT_TRUE(browser.problems().empty()) << browser.problems().front();
  }
}

TEST(PlanCommand, DrawsTheLayoutsOfASearch) {
  const TempDir folder;
  const ProcessResult r = run_process(
      {INGOT_BINARY, "plan", std::string(INGOT_SOURCE_DIR) + "/recipes/first.toml", "--model.vocab=512",
       "--ranks", "2", "--cluster", kCluster, "--search", "--html", folder / "layouts.html"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  const std::string page = read_text(folder / "layouts.html");
  for (const char* part : {"Layouts that fit", "Fields of the first", "--parallel.shard=", "tokens/s"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

/// What a program reads of a search, and that a plan with the fields of the first takes the same time.
TEST(PlanCommand, ASearchAsJsonNamesFieldsThatCanBeTyped) {
  const std::vector<std::string> first = {
      INGOT_BINARY,        "plan",    std::string(INGOT_SOURCE_DIR) + "/recipes/first.toml",
      "--model.vocab=512", "--ranks", "2",
      "--cluster",         kCluster,  "--json"};
  std::vector<std::string> words = first;
  words.push_back("--search");
  const ProcessResult r = run_process(words, {"INGOT_LOG=error"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const auto found = nlohmann::json::parse(r.output);
  EXPECT_EQ(found.at("format"), 1);
  EXPECT_EQ(found.at("ranks"), 2);
  EXPECT_EQ(found.at("device_bytes"), 77'000'000'000);
  EXPECT_EQ(found.at("tried").get<int>(), found.at("refused").get<int>() + found.at("too_large").get<int>() +
                                              found.at("too_slow").get<int>() + found.at("fit").get<int>());
  ASSERT_FALSE(found.at("best").empty());
  const auto& best = found.at("best")[0];
  words = first;
  for (const auto& field : best.at("fields")) words.push_back(field);
  const ProcessResult again = run_process(words, {"INGOT_LOG=error"});
  ASSERT_EQ(again.exit_code, 0) << again.output;
  const double step = nlohmann::json::parse(again.output).at("time").at("step_seconds");
  EXPECT_NEAR(step, best.at("step_seconds").get<double>(), 1e-6 * step);
  for (const auto& family : found.at("rejected"))
    EXPECT_FALSE(family.at("reason").get<std::string>().empty());
}

/// Of layouts with whole copies, the search names what the Smol Training Playbook's authors trained with.
TEST(PlanCommand, ASearchFindsTheLayoutOfSmolLM3) {
  const ProcessResult r = run_process({INGOT_BINARY, "plan", kRecipe, "--phase", "stage 1", "--ranks", "384",
                                       "--cluster", kCluster, "--search", "--json"},
                                      {"INGOT_LOG=error"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const auto found = nlohmann::json::parse(r.output);
  std::vector<std::string> whole;
  for (const auto& layout : found.at("best"))
    if (const std::string words = layout.at("layout"); words.find("shard") == std::string::npos)
      whole.push_back(words);
  ASSERT_FALSE(whole.empty()) << r.output;
  EXPECT_EQ(whole.front(), "data 192 x tensor 2, micro-batch 3");
  int pipelines = 0;
  for (const auto& family : found.at("rejected"))
    if (family.at("family").get<std::string>().find("pipeline") != std::string::npos) {
      ++pipelines;
      EXPECT_NE(family.at("reason").get<std::string>().find("% slower than the best"), std::string::npos)
          << family.dump();
    }
  EXPECT_GE(pipelines, 3);
}

/// An option without effect would look as if it had one.
TEST(PlanCommand, WhatAModeDoesNotUseIsRefusedByName) {
  const auto refused = [](const std::string& mode, const std::vector<std::string>& more,
                          const std::string& name) {
    std::vector<std::string> words = {"--cluster", kCluster, mode};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult r = plan(words);
    EXPECT_EQ(r.exit_code, 2) << mode << " " << name << "\n" << r.output;
    for (const std::string& each : {mode, name})
      EXPECT_NE(r.output.find(each), std::string::npos) << each << "\n" << r.output;
  };
  for (const std::string mode : {"--advice", "--search"}) {
    refused(mode, {"--rank", "3"}, "--rank");
    refused(mode, {"--imbalance", "1.5"}, "--imbalance");
    refused(mode, {"--document-tokens", "100"}, "--document-tokens");
    refused(mode, {"--budget"}, "--budget");
  }
  refused("--advice", {"--html", "page.html"}, "--html");
  refused("--advice", {"--search"}, "--search");
  refused("--search", {"--slow", "0:1.5"}, "--slow");
  refused("--published", {}, "recipe");
  const auto alone = [](const std::vector<std::string>& words, const std::string& name) {
    std::vector<std::string> all = {INGOT_BINARY, "plan"};
    all.insert(all.end(), words.begin(), words.end());
    const ProcessResult r = run_process(all);
    EXPECT_EQ(r.exit_code, 2) << r.output;
    EXPECT_NE(r.output.find(name), std::string::npos) << name << "\n" << r.output;
  };
  alone({"--published", "--json"}, "--json");
  alone({"--published", "--ranks", "4"}, "--ranks");
  alone({"--published", "--parallel.tensor=2"}, "--parallel.tensor=2");
  alone({"--accuracy", "run", "--phase", "x"}, "--phase");
}

TEST(PlanCommand, ThePapersFormulasNeedNoRecipe) {
  const ProcessResult r = run_process({INGOT_BINARY, "plan", "--published"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("Llama-405B total"), std::string::npos) << r.output;
}

TEST(PlanCommand, RefusesWhatCannotBe) {
  const auto refused = [](const ProcessResult& r, int code, const char* part) {
    EXPECT_EQ(r.exit_code, code) << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << part << "\n" << r.output;
  };
  refused(run_process({INGOT_BINARY, "plan"}), 2, "needs a recipe");
  refused(plan({"--rank", "16"}), 1, "the plan has the ranks 0 to 15");
  refused(run_process({INGOT_BINARY, "plan", kRecipe, "--phase", "stage 9"}), 1,
          "the recipe has no phase 'stage 9'");
  refused(plan({"--parallel.tensor=3", "--parallel.sequence=true"}), 1, "do not divide");
  refused(plan({"--cluster", std::string(INGOT_SOURCE_DIR) + "/clusters/cpu-2core.toml"}), 1,
          "the plan has 16 ranks, cluster 'CPU, 2 cores' 2 devices");
  refused(plan({"--parallel.pipeline=32", "--cluster", kCluster, "--advice"}), 1,
          "16 ranks do not divide into groups of parallel.pipeline = 32");
  refused(plan({"--cluster", kCluster, "--slow", "x"}), 1, "expected STAGE:FACTOR");
  refused(plan({"--links", "0.5"}), 2, "--cluster");
  refused(run_process({INGOT_BINARY, "plan", "--accuracy", "nowhere"}), 1,
          "'nowhere' is no folder of a run: it has no run.json");
  refused(run_process({INGOT_BINARY, "plan", kRecipe, "--accuracy", "nowhere"}), 2, "--accuracy");
}

}  // namespace ingot::test::plan_command_test
