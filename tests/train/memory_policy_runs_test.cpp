// train/memory_policy and tensor/offload: names that people write, amounts of memory, the ladder under a
// limit, and the file that activations wait in.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "models/presets.h"
#include "ops/registry.h"
#include "report/metrics.h"
#include "support/interrupter.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/memory_policy.h"
#include "train/step.h"
#include "train/trainer.h"

namespace ingot::test::memory_policy_runs_test {

const Op& op_named(const std::string& name) {
  for (const Op* op : all_ops())
    if (op->name == name) return *op;
  throw std::runtime_error("no op " + name);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
  return "no error";
}

TEST(MemoryPolicy, NamesSelectOpsOutputsAndModules) {
  const NamedPolicy policy({"activation", "add_norm.h", "attention/linear", "experts/"},
                           {"attention/", "add_norm.stream"});
  const Segment attention{"attention", 0, 0, 0}, mlp{"mlp", 0, 0, 0}, experts{"experts", 0, 0, 0};
  const Op &linear = op_named("linear"), &activation = op_named("activation"), &norm = op_named("add_norm");
  EXPECT_EQ(policy.fate(activation, 0, mlp), SlotFate::recompute);
  EXPECT_EQ(policy.fate(linear, 0, attention), SlotFate::recompute)
      << "recompute wins over the module's offload";
  EXPECT_EQ(policy.fate(linear, 0, mlp), SlotFate::keep);
  EXPECT_EQ(policy.fate(linear, 0, experts), SlotFate::recompute);
  EXPECT_EQ(policy.fate(op_named("attention"), 0, attention), SlotFate::offload);
  EXPECT_EQ(policy.fate(norm, 0, experts), SlotFate::offload) << "a whole module does not include the stream";
  EXPECT_EQ(policy.fate(norm, 1, mlp), SlotFate::recompute);
  EXPECT_TRUE(policy.offloads());
  const NamedPolicy fp8({"activation"}, {"attention/", "add_norm"},
                        {"mlp/", "attention/linear", "add_norm.h"});
  EXPECT_EQ(fp8.fate(activation, 0, mlp), SlotFate::recompute);
  EXPECT_EQ(fp8.fate(linear, 0, mlp), SlotFate::fp8);
  EXPECT_EQ(fp8.fate(linear, 0, attention), SlotFate::fp8) << "fp8 wins over the module's offload";
  EXPECT_EQ(fp8.fate(norm, 1, mlp), SlotFate::fp8);
  EXPECT_EQ(fp8.fate(norm, 0, mlp), SlotFate::offload);
  const NamedPolicy modules({}, {}, {"attention/"});
  EXPECT_EQ(modules.fate(op_named("attention"), 0, attention), SlotFate::fp8);
  EXPECT_EQ(modules.fate(op_named("attention"), 1, attention), SlotFate::keep) << "lse";
  EXPECT_FALSE(NamedPolicy({}, {}, {"activation"}).empty());
  EXPECT_TRUE(NamedPolicy({}).empty());
}

TEST(MemoryPolicy, NamesOfEvenLayersSelectNoOthers) {
  const NamedPolicy policy({"attention/linear@even", "mlp/@even", "activation@even"});
  const Op &linear = op_named("linear"), &activation = op_named("activation");
  for (const int layer : {-1, 0, 1, 2, 3}) {
    const SlotFate even = layer >= 0 && layer % 2 == 0 ? SlotFate::recompute : SlotFate::keep;
    for (const char* module : {"attention", "mlp"})
      EXPECT_EQ(policy.fate(linear, 0, {module, layer, 0, 0}), even) << module << " of layer " << layer;
    EXPECT_EQ(policy.fate(linear, 0, {"experts", layer, 0, 0}), SlotFate::keep);
    EXPECT_EQ(policy.fate(activation, 0, {"experts", layer, 0, 0}), even);
  }
  std::vector<std::string> names = {"activation@even", "mlp/@even"};
  EXPECT_TRUE(names_even_layers({.fp8 = names}));
  add_names(names, {"mlp/", "activation@even", "mlp/"});
  EXPECT_EQ(names, (std::vector<std::string>{"activation@even", "mlp/"}));
  add_names(names, {"activation"});
  EXPECT_FALSE(names_even_layers({.recompute = names}));
}

TEST(MemoryPolicy, UnknownNamesGetTheNearest) {
  EXPECT_NE(error_of([] { NamedPolicy({"activatoin"}); }).find("'activation'"), std::string::npos);
  EXPECT_NE(error_of([] {
              NamedPolicy({}, {"atention/"});
            }).find("memory.offload names 'atention', which is no module"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              NamedPolicy({}, {}, {"activatoin"});
            }).find("memory.fp8 names 'activatoin', which is no op"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              NamedPolicy({}, {}, {"attention/attention.lse"});
            }).find("memory.fp8 names 'attention.lse', which has no gradient"),
            std::string::npos);
  EXPECT_NE(error_of([] { NamedPolicy({"mlp/linear.z"}); }).find("'linear.y'"), std::string::npos);
  EXPECT_NE(error_of([] { NamedPolicy({""}); }).find("which is no op"), std::string::npos);
  EXPECT_NE(error_of([] { NamedPolicy({"@even"}); }).find("which is no op"), std::string::npos);
  EXPECT_NE(error_of([] { NamedPolicy({"mlp/linear@odd"}); }).find("'linear@odd', which is no op"),
            std::string::npos);
}

TEST(MemoryPolicy, AmountsOfMemory) {
  EXPECT_EQ(parse_memory("", "f"), 0);
  EXPECT_EQ(parse_memory("16GiB", "f"), int64_t{16} << 30);
  EXPECT_EQ(parse_memory("512 MiB", "f"), int64_t{512} << 20);
  EXPECT_EQ(parse_memory("1.5GB", "f"), 1500000000);
  EXPECT_EQ(parse_memory("2e9", "f"), 2000000000);
  for (const char* bad : {"GiB", "-1GiB", "16 gigs", "nan", "inf", "1e30TiB", "0", "16GiB!"})
    EXPECT_NE(error_of([&] { parse_memory(bad, "memory.limit"); }).find("memory.limit"), std::string::npos)
        << bad;
}

/// Memory of a micro-batch's activations under the first `levels` policy levels, as planned.
int64_t planned_bytes(const ModelConfig& config, const Precision& precision, size_t levels) {
  std::vector<std::string> recompute, offload;
  for (size_t i = 0; i < levels; ++i) {
    const PolicyLevel& r = policy_levels()[i];
    add_names(recompute, r.recompute);
    add_names(offload, r.offload);
  }
  const Model model(config, precision, {}, Backing::nothing);
  const NamedPolicy policy(recompute, offload);
  return plan_step(model, {.head = HeadMode::gradient, .micro_batch = 4, .policy = &policy}, 4, 256)
      .memory.slab_bytes;
}

ModelConfig preset_with_vocab(const char* name) {
  ModelConfig m = model_preset(name);
  m.vocab = 8192;
  return m;
}

TEST(MemoryPolicy, EachRungOfTheLadderNeedsLess) {
  std::vector<ModelConfig> models;
  for (const char* preset : {"gpt2", "llama-small", "modded-nanogpt", "moe-small", "zaya-small"})
    models.push_back(preset_with_vocab(preset));
  models.push_back(preset_with_vocab("gpt-10m"));
  models.back().preset += " with experts";
  models.back().moe.experts = 8, models.back().moe.top_k = 2, models.back().moe.hidden = 256;
  for (const ModelConfig& m : models)
    for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
      int64_t before = planned_bytes(m, precision, 0);
      for (size_t levels = 1; levels <= policy_levels().size(); ++levels) {
        const int64_t bytes = planned_bytes(m, precision, levels);
        EXPECT_LT(bytes, before) << m.preset << ": " << policy_levels()[levels - 1].cost;
        before = bytes;
      }
    }
}

TEST(MemoryPolicy, ALayerComputedAgainKeepsItsStreamsOnly) {
  for (const char* preset : {"gpt2", "llama-small", "moe-small", "zaya-small"}) {
    ModelConfig m = preset_with_vocab(preset);
    const auto with_layers = [&](int64_t layers) {
      m.layers = layers;
      return planned_bytes(m, Precision::f32(), static_cast<size_t>(recompute_levels()));
    };
    const int64_t router_state = m.moe.router == RouterKind::zaya ? m.moe.router_width : 0;
    const auto streams = static_cast<double>(4 * 256 * (2 * m.width + router_state) * 4);
    const double layer = static_cast<double>(with_layers(12) - with_layers(8)) / 4;
    EXPECT_NEAR(layer / streams, 1, 0.05) << preset;
  }
}

TEST(OffloadStore, BytesComeBack) {
  const TempDir folder;
  const auto store = file_offload_store(folder.path());
  std::vector<std::string> data;
  for (const size_t size : {1, 4095, 4096, 100000, 3000000, 100000})
    data.push_back(std::string(size, static_cast<char>('a' + data.size())));
  for (int round = 0; round < 3; ++round) {  // freed places are taken again
    std::vector<OffloadStore::Handle> handles;
    for (const std::string& d : data)
      handles.push_back(store->write(d.data(), static_cast<int64_t>(d.size())));
    for (const auto t : handles) store->wait(t);
    for (size_t i = data.size(); i-- > 0;) {
      std::string back(data[i].size(), '?');
      store->read(handles[i], back.data());
      store->wait(handles[i]);
      EXPECT_TRUE(back == data[i]) << i;
      store->forget(handles[i]);
    }
  }
  const auto unfinished = store->write(data[4].data(), static_cast<int64_t>(data[4].size()));
  store->forget(unfinished);  // waits by itself
}

TEST(OffloadStore, AFolderThatCannotHoldAFileIsNamed) {
  EXPECT_NE(error_of([] { file_offload_store("/nonexistent/folder"); }).find("/nonexistent/folder"),
            std::string::npos);
}

TEST(OffloadStore, NoSpaceIsAnErrorOfTheWait) {
  const TempDir folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto store = file_offload_store(folder.path());
  const std::string data(3 << 20, 'x');
  const auto handle = store->write(data.data(), static_cast<int64_t>(data.size()));
  const std::string message = error_of([&] { store->wait(handle); });
  store->forget(handle);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_NE(message.find("memory.offload_folder"), std::string::npos) << message;
}

/// A run whose activations dominate: its plan under a limit.
class Limited : public ::testing::Test {
 protected:
  Limited() {
    write_text(folder_ / "text.txt", tiny_text(20000));
    write_text(folder_ / "recipe.toml", tiny_recipe(folder_ / "run", folder_ / "data", folder_ / "text.txt"));
  }
  Preflight plan(std::vector<std::string> overrides) {
    for (const char* common : {"--phases.0.batch=16", "--phases.0.micro_batch=16", "--phases.0.sequence=128",
                               "--model.context=128", "--model.layers=10"})
      overrides.push_back(common);
    return Trainer(real_file_system(), load_recipe(folder_ / "recipe.toml", overrides),
                   StartMode::resume_or_start)
        .plan();
  }
  TempDir folder_;
};

TEST_F(Limited, TheLadderIsClimbedAsFarAsNeeded) {
  const Preflight free = plan({});
  EXPECT_TRUE(free.recompute.empty() && free.offload.empty() && free.policy_cost.empty());
  size_t levels = 0;
  int64_t lowest = free.predicted_bytes;
  for (int percent = 95; percent > 20; percent -= 5) {
    const int64_t limit = free.predicted_bytes / 100 * percent;
    try {
      const Preflight f = plan({"--memory.limit=" + std::to_string(limit)});
      EXPECT_LE(f.predicted_bytes, limit);
      EXPECT_GE(f.recompute.size() + f.offload.size(), levels) << "less memory never needs less";
      levels = f.recompute.size() + f.offload.size();
      lowest = f.predicted_bytes;
      EXPECT_NE(f.text.find("chosen for memory.limit"), std::string::npos) << f.text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("but memory.limit is"), std::string::npos) << e.what();
      EXPECT_LT(limit, lowest);
      break;
    }
  }
  EXPECT_GT(levels, 2u);
  EXPECT_LT(lowest, free.predicted_bytes * 3 / 4);
}

TEST_F(Limited, WhatCannotFitSaysWhatWould) {
  const Preflight free = plan({});
  const int64_t fixed = free.weight_bytes + free.gradient_bytes + free.optimizer_bytes + free.scratch_bytes +
                        free.snapshot_bytes;
  // Less than the last policy level needs, more than it needs for one of sixteen sequences.
  const int64_t little = (free.predicted_bytes - fixed) / 24;
  const std::string tight = error_of([&] { plan({"--memory.limit=" + std::to_string(fixed + little)}); });
  EXPECT_NE(tight.find("micro_batch = "), std::string::npos) << tight;
  const std::string hopeless = error_of([&] { plan({"--memory.limit=" + std::to_string(fixed)}); });
  EXPECT_NE(hopeless.find("smaller sequence or model"), std::string::npos) << hopeless;
}

TEST_F(Limited, ARunUnderALimitHasTheSameBits) {
  const auto train = [&](const std::string& name, std::vector<std::string> overrides) {
    overrides.push_back("--run.folder=" + (folder_ / name));
    Trainer(real_file_system(), load_recipe(folder_ / "recipe.toml", overrides), StartMode::resume_or_start)
        .run();
  };
  train("free", {});
  train("tight", {"--memory.recompute=[\"attention/\", \"experts/\"]",
                  "--memory.offload=[\"add_norm.stream\", \"embedding\"]"});
  EXPECT_EQ(difference(folder_ / "free", folder_ / "tight"), "");
}

const char* const kFp8 = "--memory.fp8=[\"activation\", \"add_norm.h\"]";

TEST_F(Limited, ValuesInFp8NeedLess) {
  const Preflight free = plan({}), in_fp8 = plan({kFp8});
  EXPECT_LT(in_fp8.activation_bytes(), free.activation_bytes() * 9 / 10);
  EXPECT_EQ(in_fp8.predicted_bytes - in_fp8.activation_bytes(),
            free.predicted_bytes - free.activation_bytes());
  EXPECT_NE(in_fp8.text.find("in FP8 until backward: activation, add_norm.h"), std::string::npos)
      << in_fp8.text;
  EXPECT_NE(to_json(in_fp8).find("\"fp8\""), std::string::npos);
  // A limit adds to it, and what it adds is recomputed first.
  const Preflight limited =
      plan({kFp8, fmt::format("--memory.limit={}", in_fp8.predicted_bytes - (1 << 20))});
  EXPECT_EQ(limited.fp8, in_fp8.fp8);
  EXPECT_FALSE(limited.recompute.empty());
}

double mean_loss(const std::string& run, size_t first_step, size_t steps) {
  const std::vector<MetricRow> rows = read_metrics(real_file_system(), run + "/metrics.jsonl");
  double sum = 0;
  for (size_t i = 0; i < steps; ++i) sum += *rows.at(first_step + i).scalar("loss");
  return sum / static_cast<double>(steps);
}

/// Rounding has no bias, and moves the loss of the last steps by 1e-5 here; another seed moves it by 8e-3.
TEST_F(Limited, ARunInFp8LearnsAlikeAndRunsOnWithItsOwnBits) {
  const auto train = [&](const std::string& name, std::vector<std::string> overrides, int stop = 0) {
    overrides.push_back("--run.folder=" + (folder_ / name));
    Trainer trainer(real_file_system(), load_recipe(folder_ / "recipe.toml", overrides),
                    StartMode::resume_or_start);
    Interrupter interrupter(stop);
    if (stop > 0) trainer.observe(&interrupter);
    trainer.run();
  };
  train("free", {}), train("fp8", {kFp8});
  EXPECT_NE(difference(folder_ / "free", folder_ / "fp8"), "");
  EXPECT_EQ(mean_loss(folder_ / "free", 0, 1), mean_loss(folder_ / "fp8", 0, 1)) << "forward is as it was";
  const double free = mean_loss(folder_ / "free", 18, 6), in_fp8 = mean_loss(folder_ / "fp8", 18, 6);
  EXPECT_NEAR(in_fp8, free, 1e-3);
  for (const MetricRow& row : read_metrics(real_file_system(), folder_ / "fp8/metrics.jsonl"))
    EXPECT_EQ(*row.scalar("memory_plan_misses"), 0) << "the slab is the planned one";
  train("stopped", {kFp8}, 9);
  train("stopped", {kFp8});
  EXPECT_EQ(difference(folder_ / "fp8", folder_ / "stopped"), "");
  train("other", {kFp8}, 9);
  const std::string refused = error_of([&] { train("other", {}); });
  EXPECT_NE(refused.find("memory.fp8"), std::string::npos) << refused;
  train("other", {kFp8, "--memory.recompute=[\"attention/\"]"});
}

}  // namespace ingot::test::memory_policy_runs_test
