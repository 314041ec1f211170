// Adapters: nothing changes at step 0, gradients are those of finite differences, the base stays bit for bit,
// merged weights compute what the adapters do, frozen parameters stay; what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/philox.h"
#include "checkpoint/model_state.h"
#include "exchange/export.h"
#include "exchange/import.h"
#include "exchange/stored_model.h"
#include "ops/reference.h"
#include "support/small_models.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tape/backward.h"
#include "tape/op.h"
#include "train/step.h"

namespace ingot::test::lora_test {

using reference::Array;

Array logits(const Model& model) {
  std::vector<int32_t> ids = {1, 5, 3, 2, 8, 1, 0, 4, 7}, positions = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const BatchLayout rows{9, {{0, 9, 0, nullptr}}};
  HeapArena arena;
  Tape tape(arena, {.record = false});
  Context c{tape, model.weights(), &rows, tape.leaf(Tensor::of(positions.data(), {9}))};
  model.equip(c);
  const DecoderOutput out = model.decoder().forward(c, tape.leaf(Tensor::of(ids.data(), {9})));
  return reference::load(model.decoder().logits(c, out.hidden_TD).tensor());
}

double worst(const Array& a, const Array& b) {
  double difference = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return difference / scale;
}

class Policy {
 public:
  explicit Policy(KernelPolicy p) : before_(kernel_policy()) { set_kernel_policy(p); }
  ~Policy() { set_kernel_policy(before_); }

 private:
  KernelPolicy before_;
};

TEST(Lora, NothingChangesAtStepZero) {
  for (const std::string& name : small_model_names()) {
    if (small_model_config(name).lora.rank > 0) continue;
    SCOPED_TRACE(name);
    const Policy any(KernelPolicy::any);
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      const auto base = small_model(name, precision);
      ModelConfig config = base->config();
      config.lora.rank = 4;
      Model adapted(config, precision);
      adapted.weights().initialize(5);
      const ParameterTable& table = adapted.decoder().table();
      for (int i = 0; i < table.size(); ++i)
        if (!is_adapter(table[i].name))
          reference::store(
              adapted.weights().master(i),
              reference::load(base->weights().master(base->decoder().table().find(table[i].name))));
      adapted.weights().refresh_compute();
      if (config.moe.balance != BalanceRule::none)
        for (const int64_t l : adapted.decoder().moe_layers())
          reference::store(adapted.router_bias(l), reference::load(base->router_bias(l)));
      EXPECT_EQ(logits(adapted), logits(*base));
      EXPECT_GT(adapted.decoder().table().trainable(), 0);
    }
  }
}

/// The summed loss of a batch in double.
double loss(const Model& model, const data::Batch& batch, GradientBuffer* gradients) {
  const MicroBatch mb = micro_batch(batch, 0, batch.rows);
  HeapArena arena;
  Tape tape(arena, {.record = gradients != nullptr, .sink = gradients});
  Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
  DecoderOutput out = model.decoder().forward(c, tape.leaf(mb.ids));
  const HeadResult h =
      model.decoder().head(c, {.mode = HeadMode::store}, out.hidden_TD, tape.leaf(mb.targets));
  const Array logprob = reference::load(h.logprob_T.tensor());
  double sum = 0;
  Array d(logprob.size(), 0.0);
  for (size_t t = 0; t < logprob.size(); ++t)
    if (batch.targets[t] >= 0) sum -= logprob[t], d[t] = -1;
  if (gradients != nullptr) {
    std::vector<float> narrow(d.begin(), d.end());
    const bool wide = h.logprob_T.dtype() == DType::f64;
    tape.seed(h.logprob_T, wide ? Tensor::of(d.data(), {batch.rows * batch.sequence_length})
                                : Tensor::of(narrow.data(), {batch.rows * batch.sequence_length}));
    Backward(tape).run();
  }
  return sum;
}

TEST(Lora, GradientsAreThoseOfFiniteDifferences) {
  const Policy reference_kernels(KernelPolicy::reference);
  for (const char* name : {"llama-lora", "mla-lora"}) {
    const auto model = small_model(name, Precision::f64());
    const data::Batch batch = packed_batch(1, 12, {7, 5}, model->config().vocab);
    const ParameterTable& table = model->decoder().table();
    GradientBuffer gradients(table, {}, DType::f64);
    gradients.begin_step();
    loss(*model, batch, &gradients);
    int checked = 0;
    for (int i = 0; i < table.size(); ++i) {
      EXPECT_EQ(table[i].trainable, is_adapter(table[i].name)) << table[i].name;
      EXPECT_EQ(gradients.written(i), table[i].trainable) << table[i].name;
      if (!table[i].trainable || table[i].name.find("layers.1.") == std::string::npos) continue;
      const Tensor w = model->weights().master(i), g = gradients.gradient(i);
      for (const int64_t at : {int64_t{0}, w.numel() / 2, w.numel() - 1}) {
        double& x = w.as<double>()[at];
        const double before = x, step = 1e-5;
        x = before + step;
        const double up = loss(*model, batch, nullptr);
        x = before - step;
        const double down = loss(*model, batch, nullptr);
        x = before;
        EXPECT_NEAR(g.as<double>()[at], (up - down) / (2 * step), 1e-6) << table[i].name << " " << at;
        ++checked;
      }
    }
    EXPECT_GE(checked, 12);
  }
}

class LoraRun : public ::testing::Test {
 protected:
  std::string write_recipe(const std::string& name, const std::string& more) {
    write_text(dir_ / "text.txt", tiny_text(800));
    write_text(dir_ / (name + ".toml"), fmt::format(R"([run]
folder = "{0}/{1}"
{2}[tokenizer]
kind = "characters"
[data]
folder = "{0}/data"
[[data.sources]]
name = "words"
path = "{0}/text.txt"
tail_validation = true
[[phases]]
steps = 6
batch = 2
sequence = 16
lr = 1e-2
warmup = 0
[samples]
prompts = ["the "]
tokens = 4
[model]
preset = "llama-small"
width = 16
layers = 2
heads = 2
kv_heads = 1
head_width = 8
hidden = 24
context = 32
)",
                                                    dir_.path(), name, more));
    return dir_ / (name + ".toml");
  }
  std::string ingot(std::vector<std::string> arguments, int expected = 0) {
    arguments.insert(arguments.begin(), INGOT_BINARY);
    const ProcessResult r = run_process(arguments);
    EXPECT_EQ(r.exit_code, expected) << arguments[1] << "\n" << r.output;
    return r.output;
  }
  Array tensor(const std::string& run, const std::string& name) {
    const auto reader = CheckpointReader::open(real_file_system(), dir_ / (run + "/checkpoints"));
    Array values(static_cast<size_t>(reader.tensors().at(name).meta.shape.numel()));
    reader.read(name, Region::whole(reader.tensors().at(name).meta.shape), DType::f64, values.data());
    return values;
  }
  std::unique_ptr<Model> load(const std::string& path) {
    const StoredModel m = open_stored_model(real_file_system(), path);
    auto model = std::make_unique<Model>(m.config, Precision::f32());
    load_model(m.reader, *model);
    return model;
  }
  TempDir dir_;
};

TEST_F(LoraRun, TheBaseStaysAndMergedWeightsComputeTheSame) {
  ingot({"run", write_recipe("base", "")});
  write_text(dir_ / "rows.jsonl", "{\"prompt\": \"the river \", \"completion\": \"runs under a stone\"}\n");
  const std::string tuned =
      ingot({"finetune", dir_ / "base", dir_ / "rows.jsonl", "--run", dir_ / "tuned", "--epochs", "8",
             "--batch", "1", "--lr", "3e-2", "--lora", "4", "--lora-alpha", "6", "--lora-targets",
             "*.attention.*", "--lora-targets", "*.1.mlp.*"});
  EXPECT_NE(tuned.find("frozen"), std::string::npos) << tuned;
  const StoredModel base = open_stored_model(real_file_system(), dir_ / "base"),
                    adapted = open_stored_model(real_file_system(), dir_ / "tuned");
  int pairs = 0;
  for (const auto& [name, stored] : adapted.reader.tensors()) {
    if (stored.kind == TensorKind::weight && !is_adapter(name)) {
      EXPECT_EQ(tensor("tuned", name), tensor("base", name)) << name;
    }
    if (stored.kind == TensorKind::optimizer && name != "optimizer/optimizer.step") {
      EXPECT_NE(name.find(".lora_"), std::string::npos) << "state of what is frozen: " << name;
    }
    if (!name.ends_with(".lora_b")) continue;
    EXPECT_NE(tensor("tuned", name), Array(tensor("tuned", name).size(), 0.0));
    ++pairs;
  }
  EXPECT_EQ(pairs, 6);  // qkv and out of two layers, gate_up and down of one
  ingot({"export", dir_ / "tuned", dir_ / "hf"});
  ingot({"import", dir_ / "hf", dir_ / "merged"});
  const Array with = logits(*load(dir_ / "tuned")), merged = logits(*load(dir_ / "merged")),
              without = logits(*load(dir_ / "base"));
  EXPECT_LT(worst(merged, with), 1e-6);
  EXPECT_GT(worst(without, with), 1e-3);
  EXPECT_EQ(open_stored_model(real_file_system(), dir_ / "merged").config.lora.rank, 0);
  ingot({"generate", "--run", dir_ / "tuned", "--prompt", "the ", "--max-tokens", "4"});
  ingot({"export", dir_ / "tuned", dir_ / "tuned.gguf", "--format", "gguf", "--dtype", "f32"},
        1);  // characters: no GGUF tokenizer
  // Trained on, but not given a second pair, averaged or upcycled.
  ingot({"finetune", dir_ / "tuned", dir_ / "rows.jsonl", "--run", dir_ / "more", "--batch", "1"});
  EXPECT_NE(ingot({"finetune", dir_ / "tuned", dir_ / "rows.jsonl", "--run", dir_ / "x", "--lora", "2"}, 1)
                .find("adapters already"),
            std::string::npos);
  EXPECT_NE(ingot({"average", dir_ / "tuned", dir_ / "more", "-o", dir_ / "x"}, 1).find("merge them"),
            std::string::npos);
  EXPECT_NE(ingot({"upcycle", dir_ / "tuned", dir_ / "x"}, 1).find("merge them"), std::string::npos);
}

TEST_F(LoraRun, FrozenParametersStay) {
  const std::string recipe = write_recipe("base", "");
  ingot({"run", recipe});
  const std::string output =
      ingot({"run", write_recipe("frozen", fmt::format("start_from = \"{}/base\"\n", dir_.path())),
             "--optimizer.freeze=[\"embed.*\", \"layers.0.*\", \"*norm*\"]"});
  EXPECT_NE(output.find("frozen"), std::string::npos) << output;
  const auto reader = CheckpointReader::open(real_file_system(), dir_ / "frozen/checkpoints");
  int moved = 0;
  for (const auto& [name, stored] : reader.tensors()) {
    const bool frozen = name.find("embed.") != name.npos || name.find("layers.0.") != name.npos ||
                        name.find("norm") != name.npos;
    if (stored.kind == TensorKind::optimizer) {
      EXPECT_FALSE(frozen) << name;
    }
    if (stored.kind != TensorKind::weight) continue;
    EXPECT_EQ(tensor("frozen", name) == tensor("base", name), frozen) << name;
    moved += !frozen;
  }
  EXPECT_GE(moved, 4);
  const auto refuses = [&](const std::string& option, const std::string& part) {
    EXPECT_NE(ingot({"run", recipe, "--run.folder=" + (dir_ / "other"), option}, 1).find(part),
              std::string::npos)
        << option;
  };
  refuses("--optimizer.freeze=[\"embedd.*\"]", "matches none of");
  refuses("--optimizer.freeze=[\"*\"]", "nothing is left to train");
  refuses("--model.lora.targets=[\"*.attention.*\"]", "lora.rank");
  EXPECT_NE(ingot({"run", recipe, "--run.folder=" + (dir_ / "other"), "--model.lora.rank=2",
                   "--model.lora.targets=[\"embed.*\"]"},
                  1)
                .find("can have an adapter"),
            std::string::npos);
}

}  // namespace ingot::test::lora_test
