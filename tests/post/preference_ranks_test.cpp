// Preferences on data ranks: the loss, its sums and the gradient of a step are those of one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "comm/threads.h"
#include "post/register.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::preference_ranks_test {

class PreferenceRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    register_post();
    std::string rows;
    for (int i = 0; i < 80; ++i)
      rows += nlohmann::json{{"prompt", fmt::format("{} plus {} is ", i % 9, i % 4)},
                             {"chosen",
                              std::to_string(i % 9 + i % 4) + std::string(static_cast<size_t>(i % 6), '.')},
                             {"rejected", "something else"}}
                  .dump() +
              "\n";
    write_text(folder_ / "pairs.jsonl", rows);
  }

  std::vector<MetricRow> run(const std::string& name, int ranks, std::vector<std::string> more) {
    write_text(folder_ / (name + ".toml"), fmt::format(R"([run]
folder = "{0}/{1}"
[model]
preset = "llama-small"
width = 16
layers = 1
heads = 2
kv_heads = 1
head_width = 8
hidden = 24
context = 64
[tokenizer]
kind = "characters"
[data]
folder = "{0}/data"
[[data.sources]]
name = "pairs"
path = "{0}/pairs.jsonl"
preferences = true
validation_fraction = 0.3
[[phases]]
kind = "preference"
steps = 3
batch = 8
sequence = 64
warmup = 0
[phases.preference]
[checkpoint]
every = 0
[evaluation]
every = 1
[samples]
prompts = []
)",
                                                       folder_.path(), name));
    const Recipe recipe = load_recipe(folder_ / (name + ".toml"), more);
    run_ranks(ranks, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      EXPECT_TRUE(Trainer(real_file_system(), recipe, StartMode::fresh, &self).run().finished);
    });
    return read_metrics(real_file_system(), folder_ / (name + "/" + run_files::kMetrics));
  }
  TempDir folder_;
  const Quiet quiet_;
};

TEST_F(PreferenceRanks, HaveTheLossAndGradientOfOne) {
  for (const char* loss : {"dpo", "kto", "orpo"}) {
    const std::string setting = std::string("--phases.0.preference.loss=") + loss;
    const std::vector<MetricRow> one = run(std::string(loss) + "1", 1, {setting, "--phases.0.micro_batch=8"});
    ASSERT_EQ(one.size(), 3u);
    for (const int ranks : {2, 4})
      for (const int micro : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} on {} ranks, micro-batches of {}", loss, ranks, micro));
        const std::vector<MetricRow> many = run(fmt::format("{}{}_{}", loss, ranks, micro), ranks,
                                                {setting, fmt::format("--phases.0.micro_batch={}", micro)});
        ASSERT_EQ(many.size(), 3u);
        for (size_t step = 0; step < 3; ++step) {
          // Sums of the same log-probabilities in another order; after an update, weights in fp32 differ too.
          const double rounding = step == 0 ? 1e-12 : 1e-4;
          int compared = 0;
          for (const auto& [name, value] : one[step].scalars) {
            if (name != "objective" && !name.starts_with("preference/")) continue;
            ++compared;
            EXPECT_NEAR(*many[step].scalar(name), value, rounding * std::max(1.0, std::abs(value))) << name;
          }
          EXPECT_GE(compared, 8);
          EXPECT_NEAR(*many[step].scalar("grad_norm") / *one[step].scalar("grad_norm"), 1, 1e-4);
          EXPECT_NEAR(*many[step].scalar("val/pairs/margin"), *one[step].scalar("val/pairs/margin"), 1e-4);
        }
      }
  }
}

}  // namespace ingot::test::preference_ranks_test
