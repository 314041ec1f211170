// `ingot finetune` on preferences, and a conversation with the result: the rows decide the phase's kind, and
// the model prefers what was chosen.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/metrics.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::preference_finetune_runs_test {

TEST(PreferenceFinetune, TakesPairsAndKeepsTheTemplate) {
  const TempDir dir;
  write_text(dir / "text.txt", tiny_text(600));
  write_text(dir / "base.toml",
             base_recipe(dir.path(), 96,
                         "kind = \"characters\"\nspecial_tokens = [\"<|im_start|>\", \"<|im_end|>\", "
                         "\"<think>\", \"</think>\"]"));
  const ProcessResult base = run_process({INGOT_BINARY, "run", dir / "base.toml"});
  ASSERT_EQ(base.exit_code, 0) << base.output;
  const auto message = [](const char* role, const char* text) {
    return nlohmann::json{{"role", role}, {"content", text}};
  };
  std::string rows, plain;
  for (int i = 0; i < 8; ++i) {
    rows += nlohmann::json{{"prompt", {message("user", "the sea")}},
                           {"chosen", {message("assistant", "salt")}},
                           {"rejected", {message("assistant", "gold and rain")}}}
                .dump() +
            "\n";
    plain += nlohmann::json{{"prompt", "the sea "}, {"chosen", "salt"}, {"rejected", "gold"}}.dump() + "\n";
  }
  write_text(dir / "pairs.jsonl", rows);
  write_text(dir / "plain.jsonl", plain);
  const auto tune = [&](const std::string& file, const std::string& run, std::vector<std::string> extra) {
    extra.insert(extra.begin(), {INGOT_BINARY, "finetune", dir / "base", dir / file, "--run", dir / run,
                                 "--batch", "1", "--epochs", "8", "--lr", "3e-3", "--sequence", "96"});
    return run_process(extra);
  };
  const ProcessResult refused = tune("pairs.jsonl", "refused", {});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.output.find("has no chat template"), std::string::npos) << refused.output;
  const ProcessResult tuned =
      tune("pairs.jsonl", "tuned", {"--chat-template", "chatml-think", "--loss=ipo", "--beta=0.5"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.output;
  const std::vector<MetricRow> steps = read_metrics(real_file_system(), dir / "tuned/metrics.jsonl");
  ASSERT_GT(steps.size(), 4u);
  EXPECT_EQ(*steps.front().scalar("preference/margin"), 0);
  EXPECT_EQ(*steps.back().scalar("preference/accuracy"), 1);
  EXPECT_NE(read_text(dir / "tuned/config.toml").find("loss = \"ipo\""), std::string::npos);
  const ProcessResult texts = tune("plain.jsonl", "texts", {});
  ASSERT_EQ(texts.exit_code, 0) << texts.output;
  EXPECT_NE(read_text(dir / "texts/config.toml").find("loss = \"dpo\""), std::string::npos);
  const ProcessResult unknown = tune("pairs.jsonl", "unknown", {"--loss=ppo"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.output.find("dpo, ipo, apo_zero, apo_down, kto, orpo, simpo"), std::string::npos)
      << unknown.output;
}

}  // namespace ingot::test::preference_finetune_runs_test
