// One engine of a step: what `ingot debug dump` writes, what `ingot bench step` times and what the trainer
// runs are the same first step, for every recipe of recipes/ and for what fine-tuning adds.
#include <gtest/gtest.h>

#include <filesystem>

#include "measure/step_bench.h"
#include "post/register.h"
#include "support/first_step.h"
#include "support/tiny_run.h"

namespace ingot::test::first_step_runs_test {

class FirstSteps : public FirstStepTest {
 protected:
  FirstSteps() {
    register_post();
    write_text(folder_ / "words.txt", tiny_text(2500));
  }

  /// A mixture of experts of two small layers, for one phase of three steps of two micro-batches.
  Recipe tiny(const std::string& name) const {
    Recipe r = recipe_from_toml(tiny_recipe(folder_ / name, folder_ / "data", folder_ / "words.txt"), name);
    return quiet(std::move(r), 3);
  }
  static Recipe quiet(Recipe r, int64_t steps) {
    r.phases.resize(1);
    r.phases[0].steps = steps;
    r.phases[0].warmup = 0;
    r.evaluation.every = r.samples.every = r.checkpoint.every = 0;
    r.evaluation.max_tokens = 48;
    r.samples.prompts.emplace();
    return r;
  }
  /// The recipe's options at a size for this test, on a little text; where it begins with conversations too.
  Recipe shrunk(const std::string& path) const {
    Recipe r = quiet(load_recipe(path, {}), 2);
    r.run.folder = folder_ / std::filesystem::path(path).stem().string();
    r.data.folder = r.run.folder + "-data";
    for (SourceConfig& s : r.data.sources) {
      s = SourceConfig{.name = s.name, .path = folder_ / "words.txt", .weight = s.weight};
      s.documents = data::DocumentSplit::blank_line;
      s.validation_fraction = 0.1;
    }
    r.run.start_from.clear();  // of a run that is not there
    r.parallel = {};           // one rank
    for (PhaseConfig& p : r.phases) p.target_source.clear(), p.target_loss = {}, p.target_ends = {};
    r.tokenizer = {};
    r.tokenizer.kind = TokenizerKind::characters;
    r.evaluation.tasks.clear();
    PhaseConfig& phase = r.phases[0];
    phase.kind = "text", phase.chat.reset(), phase.preference.reset(), phase.rl.reset();
    phase.tasks.clear(), phase.gate.clear();
    phase.batch = 4, phase.micro_batch = 2, phase.sequence = 16;
    phase.batches.clear();
    phase.window_growth = std::min<int64_t>(phase.window_growth, 16);
    ModelConfig& m = r.model;
    m.vocab = 0;
    m.width = 32, m.head_width = 8, m.hidden = 48, m.context = 64;
    if (m.is_mla())
      m.head_width = 0, m.mla.q_rank = 16, m.mla.kv_rank = 16, m.mla.nope_width = m.mla.rope_width = 8,
      m.mla.value_width = 8;
    m.kv_heads = m.kv_heads == m.heads ? 4 : 2, m.heads = 4;
    if (!m.unet_skips)
      m.layers = static_cast<int64_t>(
          std::max({size_t{2}, m.rope_pattern.size(), m.window_pattern.size(), m.attention_pattern.size()}));
    if (m.window > 0) m.window = 16, m.window_block = std::min<int64_t>(m.window_block, 8);
    if (m.moe.experts > 0) m.moe.experts = 4, m.moe.hidden = 16, m.moe.router_width = 8;
    m.moe.top_k = std::min<int64_t>(m.moe.top_k, 2), m.moe.groups = m.moe.groups_kept = 1;
    m.moe.first_dense = std::min<int64_t>(m.moe.first_dense, 1);
    return recipe_from_toml(print_config(r), path);
  }
};

TEST_F(FirstSteps, TheDumpOfEveryRecipeIsTheRunsFirstStep) {
  int count = 0;
  const std::string recipes = std::string(INGOT_SOURCE_DIR) + "/recipes/";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(recipes)) {
    if (entry.path().extension() != ".toml") continue;
    if (entry.path().filename().string().starts_with("guard-")) continue;  // no recipes of runs
    expect_the_runs_step(shrunk(entry.path().string()), 1, entry.path().string());
    ++count;
  }
  EXPECT_GE(count, 11);
}

TEST_F(FirstSteps, TheDumpOfAFineTuningIsTheRunsFirstStep) {
  const Recipe base = tiny("base");
  const auto initial = expect_the_runs_step(base, 1, "base");
  const auto variant = [&](const std::string& name) {
    Recipe r = tiny(name);
    r.run.start_from = base.run.folder;
    return r;
  };
  const std::string embedded = "embed.embedding#0.y";
  EXPECT_NE(expect_the_runs_step(variant("plain"), 1, "plain").at(embedded), initial.at(embedded));

  Recipe r = variant("frozen");
  r.optimizer.freeze = {"layers.0.*"};
  const auto frozen = expect_the_runs_step(r, 1, "frozen"), plain = dumped(variant("plain2"));
  EXPECT_LT(frozen.size(), plain.size()) << "a frozen layer has no weight gradients";
  r = variant("adapters");
  r.model.lora.rank = 2;
  expect_the_runs_step(r, 1, "adapters");
  r = variant("offloaded");
  r.memory.recompute = {"activation"};
  r.memory.offload = {"add_norm.stream", "attention/"};
  expect_the_runs_step(r, 1, "offloaded");
  r = variant("limited");
  r.memory.limit = fmt::format("{}", plan_run(real_file_system(), r).predicted_bytes - 1);
  expect_the_runs_step(r, 1, "limited");
  register_objective("twice_cross_entropy", [](const ObjectiveInputs& in) {
    ObjectiveResult result = cross_entropy(in.logprob, in.lse, in.targets, in.z_coefficient);
    for (float& d : result.d_logprob) d *= 2;
    return result;
  });
  r = variant("objective");
  r.phases[0].objective = "twice_cross_entropy";
  r.memory.head = HeadMode::store;
  const auto doubled = expect_the_runs_step(r, 1, "objective");
  r = variant("objective2");
  r.memory.head = HeadMode::store;
  EXPECT_NE(doubled, dumped(r));
}

/// What a step leaves in the model.
std::map<std::string, std::string> weights_of(const Model& model) {
  std::map<std::string, std::string> bytes;
  const auto keep = [&](const std::string& name, const Tensor& t) {
    bytes[name].assign(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
  };
  for (int i = 0; i < model.weights().size(); ++i)
    keep(model.weights().table()[i].name, model.weights().master(i));
  for (const int64_t layer : model.decoder().moe_layers())
    keep(Model::router_bias_name(layer), model.router_bias(layer));
  return bytes;
}

/// Freeze, selection biases, QK-clip and clipping included.
TEST_F(FirstSteps, TheBenchTimesTheStepThatIsTrained) {
  const auto compare = [&](Recipe r) {
    const PreparedData data = prepare_data(real_file_system(), r);
    r = with_vocabulary(r, data);
    const std::string& name = r.run.folder;
    Trainer trainer(real_file_system(), r, StartMode::fresh);
    FirstStep first;
    trainer.observe(&first);
    trainer.run_steps(1);

    const std::unique_ptr<TrainEngine> engine = engine_at_start(r);
    const auto initial = weights_of(engine->model());
    StepCall call{.options = engine->options(0, r.phases[0].micro()), .lr = r.learning_rate(0, 0)};
    TapeProfile profile;
    call.options.profile = &profile;
    engine->step(PhaseSampler(r, data).batch(0), call);
    const auto trained = weights_of(trainer.model()), benched = weights_of(engine->model());
    size_t changed = 0;
    for (const auto& [parameter, bytes] : trained) {
      EXPECT_TRUE(benched.at(parameter) == bytes) << name << ": " << parameter;
      changed += initial.at(parameter) != bytes;
    }
    EXPECT_GT(changed, 3u);

    const StepBenchReport bench = bench_step(r, 1, 0);
    for (const auto& [op, calls] : first.calls) {
      EXPECT_EQ(profile.contains(op) ? profile.at(op).calls : 0, calls) << name << ": " << op;
      EXPECT_EQ(bench.profile.contains(op) ? bench.profile.at(op).calls : 0, calls) << name << ": " << op;
    }
    EXPECT_EQ(bench.profile.size(), first.calls.size());
    return changed;
  };
  const size_t all = compare(tiny("experts"));
  Recipe r = tiny("frozen");
  r.optimizer.freeze = {"layers.0.*"};
  EXPECT_LT(compare(r), all);
  r = tiny("clipped");
  r.model.preset.clear();
  r.model = ModelConfig{.width = 16, .layers = 2, .heads = 2, .kv_heads = 1, .context = 64};
  r.optimizer.qk_clip.threshold = 1e-3;
  compare(r);
}

}  // namespace ingot::test::first_step_runs_test
