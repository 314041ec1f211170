// Training against nanoGPT: its small CPU configuration on tinyshakespeare, from the same weights and batches
// (rules and losses in tests/fixtures/models/nanogpt_shakespeare.json, made by tools/oracle/make_nanogpt.py).
//   The first 20 losses to 1e-4, three seeds.
//   INGOT_LONG_TESTS=1: all 2,000 steps; the mean validation loss of the seeds at most 1.92 and within 0.02
//   of
//   PyTorch's.
// Needs the text (optional data); skips with a message without it.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/philox.h"
#include "data/batch.h"
#include "models/presets.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "support/long_tests.h"
#include "support/support.h"
#include "train/step.h"

namespace ingot::nanogpt_oracle_test {

using Json = nlohmann::json;

struct Corpus {
  std::vector<int32_t> train, validation;
};

Corpus characters(const std::string& text, const std::string& vocabulary) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<int32_t>(vocabulary.find(c)));
  const auto cut = static_cast<std::ptrdiff_t>(0.9 * static_cast<double>(ids.size()));
  return {{ids.begin(), ids.begin() + cut}, {ids.begin() + cut, ids.end()}};
}

data::Batch windows(const std::vector<int32_t>& tokens, const std::vector<int64_t>& starts, int64_t length) {
  data::Batch b;
  b.rows = static_cast<int64_t>(starts.size());
  b.sequence_length = length;
  for (const int64_t start : starts) {
    const auto begin = static_cast<int32_t>(b.tokens.size());
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<size_t>(start + t);
      const bool inside = at + 1 < tokens.size();
      b.tokens.push_back(inside ? tokens[at] : 0);
      b.targets.push_back(inside ? tokens[at + 1] : data::kMasked);
      b.positions.push_back(static_cast<int32_t>(t));
      b.valid_targets += inside;
    }
    b.spans.push_back({begin, begin + static_cast<int32_t>(length)});
  }
  return b;
}

ModelConfig nanogpt_model() {
  ModelConfig m = model_preset("gpt-10m");
  m.vocab = 65;
  m.layers = 4;
  m.heads = m.kv_heads = 4;
  m.width = 128;
  m.context = 64;
  m.mlp = ActivationKind::gelu;
  m.norm_bias = m.attention_bias = m.mlp_bias = false;
  return m;
}

/// nanoGPT's name of one of our parameters.
std::string nanogpt_name(std::string name) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    const auto at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  };
  if (name == "embed.weight") return "transformer.wte.weight";
  if (name == "position_embed.weight") return "transformer.wpe.weight";
  if (name == "final_norm.weight") return "transformer.ln_f.weight";
  replace("layers.", "transformer.h.");
  replace("attention_norm", "ln_1");
  replace("mlp_norm", "ln_2");
  replace("attention.qkv", "attn.c_attn");
  replace("attention.out", "attn.c_proj");
  replace("mlp.up", "mlp.c_fc");
  replace("mlp.down", "mlp.c_proj");
  return name;
}

/// One training run in the fixture's conditions.
class NanoGpt {
 public:
  explicit NanoGpt(int64_t seed)
      : seed_(static_cast<uint64_t>(seed)),
        model_(nanogpt_model(), Precision::f32()),
        gradients_(model_.decoder().table(), {}, DType::f32),
        runner_(model_, gradients_) {
    std::vector<ParamView> params;
    WeightSet& w = model_.weights();
    for (int i = 0; i < w.size(); ++i) {
      const Tensor t = w.master(i);
      const std::string name = nanogpt_name(w.table()[i].name);
      const Random random(seed_, RandomPurpose::init, hash64(name));
      const double std = name.find("c_proj") != std::string::npos ? 0.02 / std::sqrt(8.0) : 0.02;
      for (int64_t k = 0; k < t.numel(); ++k)
        t.as<float>()[k] =
            t.shape().rank() == 1 ? 1.0f : static_cast<float>(std * random.normal(static_cast<uint64_t>(k)));
      params.push_back({.name = w.table()[i].name,
                        .shape = t.shape(),
                        .master = t.as<float>(),
                        .grad = gradients_.gradient(i).as<float>()});
    }
    OptimizerConfig config;
    config.groups.matrices = "adamw";
    config.groups.no_decay = {"*norm*"};
    config.adamw = {0.9, 0.99, 1e-8};
    config.weight_decay = 0.1;
    optimizer_ = std::make_unique<Optimizer>(config, std::move(params));
  }

  double step(const std::vector<int32_t>& train) {
    const Random order(seed_, RandomPurpose::data_order, 0);
    std::vector<int64_t> starts;
    for (uint64_t r = 0; r < 12; ++r)
      starts.push_back(
          static_cast<int64_t>(order.below(12 * static_cast<uint64_t>(step_) + r, train.size() - 64)));
    const StepStats s = runner_.run(windows(train, starts, 64), {.head = HeadMode::store, .micro_batch = 12});
    gradients_.finish_step();
    const double scale = 1.0 / static_cast<double>(s.valid);
    const GradNorm norm = gradient_norm(optimizer_->params(), scale);
    const ScheduleConfig schedule{
        .kind = ScheduleKind::cosine, .total_steps = 2000, .warmup_steps = 100, .min_ratio = 0.1};
    optimizer_->step({1e-3 * schedule_multiplier(schedule, step_), scale, clip_factor(norm.norm, 1.0)});
    ++step_;
    return s.loss();
  }

  double validate(const std::vector<int32_t>& tokens) {
    double nll = 0;
    int64_t valid = 0;
    const auto last = static_cast<int64_t>(tokens.size()) - 1;
    for (int64_t first = 0; first < last; first += 64 * 64) {
      std::vector<int64_t> starts;
      for (int64_t s = first; s < std::min(last, first + 64 * 64); s += 64) starts.push_back(s);
      const auto [sum, count] = runner_.evaluate(windows(tokens, starts, 64));
      nll += sum;
      valid += count;
    }
    return nll / static_cast<double>(valid);
  }

 private:
  uint64_t seed_;
  int64_t step_ = 0;
  Model model_;
  GradientBuffer gradients_;
  StepRunner runner_;
  std::unique_ptr<Optimizer> optimizer_;
};

class NanoGptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = test::optional_data("tinyshakespeare.txt");
    if (path.empty())
      GTEST_SKIP() << "tinyshakespeare.txt is absent: set INGOT_DATA to a folder that holds it";
    fixture_ = Json::parse(real_file_system().read(test::fixture("models/nanogpt_shakespeare.json")));
    const std::string text = real_file_system().read(path);
    ASSERT_EQ(text.size(), fixture_["text_bytes"].get<size_t>());
    corpus_ = characters(text, fixture_["vocabulary"]);
  }
  Json fixture_;
  Corpus corpus_;
};

TEST_F(NanoGptTest, FirstTwentyLossesAgree) {
  for (const Json& run : fixture_["runs"]) {
    NanoGpt gpt(run["seed"].get<int64_t>());
    for (const Json& expected : run["losses_double"])
      ASSERT_NEAR(gpt.step(corpus_.train), expected.get<double>(), 1e-4) << "seed " << run["seed"];
  }
}

TEST_F(NanoGptTest, TwoThousandStepsReachTheSameLoss) {
  INGOT_LONG_TEST("minutes");
  double mean = 0;
  for (const Json& run : fixture_["runs"]) {
    NanoGpt gpt(run["seed"].get<int64_t>());
    for (int i = 0; i < 2000; ++i) gpt.step(corpus_.train);
    const double loss = gpt.validate(corpus_.validation);
    printf("seed %d: validation loss %.4f (PyTorch %.4f)\n", run["seed"].get<int>(), loss,
           run["validation_loss"].get<double>());
    mean += loss / 3;
  }
  printf("mean %.4f (PyTorch %.4f)\n", mean, fixture_["mean_validation_loss"].get<double>());
  EXPECT_LE(mean, 1.92);
  EXPECT_NEAR(mean, fixture_["mean_validation_loss"].get<double>(), 0.02);
}

}  // namespace ingot::nanogpt_oracle_test
