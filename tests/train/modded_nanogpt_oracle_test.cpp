// A small version of modded-nanogpt against PyTorch (tools/oracle/modded_nanogpt.py):
// recipes/sources/modded-nanogpt.toml with other extents, from the same weights on the same tokens. Logits
// and every gradient of the first step, then the losses of 20 steps of the recipe's optimizers, in double
// (with support/optim_reference.h) to 1e-9 and in fp32 to 1e-4; and the attention mask against the script's
// lists of blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "base/philox.h"
#include "checkpoint/safetensors.h"
#include "data/rows.h"
#include "device/attention/attention.h"
#include "ops/reference.h"
#include "support/optim_reference.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tape/backward.h"
#include "train/step.h"

namespace ingot::modded_nanogpt_oracle_test {

using reference::Array;
using test::relative_difference;

/// The fixture's sizes.
struct Sizes {
  explicit Sizes(const std::string& name)
      : json(nlohmann::json::parse(test::read_text(test::fixture("record/" + name + "/reference.json")))) {}

  int64_t operator[](const char* size) const { return json.at("sizes").at(size); }
  int64_t steps() const { return json.at("steps"); }
  int64_t rows() const { return json.at("rows"); }
  int32_t separator() const { return static_cast<int32_t>((*this)["vocab"]) - 1; }
  /// A letter per layer: `other` for those of `list`.
  std::string pattern(char all, char other, const std::vector<int64_t>& list) const {
    std::string letters(static_cast<size_t>((*this)["layers"]), all);
    for (const int64_t layer : list)
      if (layer >= 0) letters[static_cast<size_t>(layer)] = other;
    return letters;
  }
  std::vector<int64_t> long_layers() const { return json.at("sizes").at("long"); }

  nlohmann::json json;
};

Recipe small_recipe(const Sizes& s) {
  const int64_t block = s["block"], window = (s["window_growth"] + block - 1) / block * block;
  std::vector<std::string> overrides = {
      "--model.attention_pattern=" + s.pattern('A', 'N', {s["no_attention"]}),
      "--model.window_pattern=" + s.pattern('H', 'S', s.long_layers()),
      "--optimizer.adamw.eps=1e-10"};  // because the fixture's loss is a mean
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"model.vocab", s["vocab"]},
           {"model.layers", s["layers"]},
           {"model.width", s["width"]},
           {"model.heads", s["heads"]},
           {"model.kv_heads", s["heads"]},
           {"model.head_width", s["head"]},
           {"model.context", s["row"]},
           {"model.window", window},
           {"model.window_block", block},
           {"model.value_embeddings", s["tables"]},
           {"model.head_multiple", s["multiple"]},
           {"phases.0.steps", s.steps()},
           {"phases.0.batch", s.rows()},
           {"phases.0.micro_batch", s.rows()},
           {"phases.0.sequence", s["row"]},
           {"phases.0.window_growth", s["window_growth"]},
           {"optimizer.muon.momentum_warmup", s.json.at("momentum_warmup")}})
    overrides.push_back(fmt::format("--{}={}", key, value));
  return load_recipe(INGOT_SOURCE_DIR "/recipes/sources/modded-nanogpt.toml", overrides);
}

Array values(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* e = file.find(name);
  if (e == nullptr) fail("'{}' has no '{}'", file.path(), name);
  const auto data = file.data(*e);
  std::vector<std::byte> copy(data.begin(), data.end());
  int64_t n = 1;
  for (const int64_t extent : e->shape) n *= extent;
  const Tensor t(copy.data(), Shape{n}, *dtype_of_safetensors(e->dtype));
  if (is_floating(t.dtype())) return reference::load(t);
  const auto ints = reference::load_ints(t);
  return {ints.begin(), ints.end()};
}

/// Where one of our parameters lies in the script's tensors.
struct Place {
  std::string tensor;
  size_t offset = 0;
};

Place place_of(std::string name, int64_t layers) {
  if (name == "embed.weight") return {"embed"};
  if (name == "lm_head.weight") return {"head"};
  if (name.rfind("value_embed.", 0) == 0) return {name.substr(0, name.size() - 7)};
  name = name.substr(7);  // after "layers."
  const std::string layer = name.substr(0, name.find('.')), rest = name.substr(layer.size() + 1);
  if (rest == "skip_scale") return {"skip_weights", static_cast<size_t>(std::stoll(layer) - layers / 2)};
  const std::map<std::string, Place> places = {
      {"attention.qkv.weight", {"qkv"}},
      {"attention.out.weight", {"out"}},
      {"attention.value_scale.own", {"value_lambdas", 0}},
      {"attention.value_scale.table", {"value_lambdas", 1}},
      {"mlp.up.weight", {"fc"}},
      {"mlp.down.weight", {"proj"}},
      {"mix_scale.stream", {"lambdas", 0}},
      {"mix_scale.origin", {"lambdas", 1}},
  };
  const Place& p = places.at(rest);
  return {layer + "." + p.tensor, p.offset};
}

/// A row of the stream: the separator opens each document, and every token is a target.
data::Batch batch_of(const Sizes& s, const Array& tokens, int64_t step) {
  const int64_t rows = s.rows(), length = s["row"];
  data::Batch b = data::make_batch(rows, length);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<size_t>((step * rows + r) * (length + 1) + t);
      const auto row = static_cast<size_t>(r * length + t);
      b.tokens[row] = static_cast<int32_t>(tokens[at]);
      b.targets[row] = static_cast<int32_t>(tokens[at + 1]);
      if (t == 0 || b.tokens[row] == s.separator()) b.spans.push_back({static_cast<int32_t>(row), 0});
      b.spans.back().end = static_cast<int32_t>(row) + 1;
      b.positions[row] = static_cast<int32_t>(row) - b.spans.back().begin;
    }
  return b;
}

struct Record {
  Record(const std::string& fixture, const Precision& p)
      : sizes(fixture),
        recipe(small_recipe(sizes)),
        precision(p),
        fixture_file(real_file_system(), test::fixture("record/" + fixture + "/reference.safetensors")),
        model(recipe.model, precision),
        gradients(model.decoder().table(), {}, precision.stream) {
    const SafetensorsFile file(real_file_system(),
                               test::fixture("record/" + fixture + "/weights.safetensors"));
    for (int i = 0; i < model.weights().size(); ++i) {
      const Tensor master = model.weights().master(i);
      const Place place = place_of(name(i), recipe.model.layers);
      const Array all = values(file, place.tensor);
      const auto first = all.begin() + static_cast<int64_t>(place.offset);
      reference::store(master, Array(first, first + master.numel()));
    }
    model.weights().refresh_compute();
  }

  std::string name(int i) const { return model.weights().table()[i].name; }
  Array expected(const std::string& tensor) const { return values(fixture_file, tensor); }
  Array gradient(int i) const { return reference::load(gradients.gradient(i)); }
  Array expected_gradient(int i) const {
    const Place place = place_of(name(i), recipe.model.layers);
    const Array all = expected("grad." + place.tensor);
    const auto first = all.begin() + static_cast<int64_t>(place.offset);
    return {first, first + gradients.gradient(i).numel()};
  }

  /// Forward and backward of a step: the mean loss; gradients are its.
  double pass(int64_t step) {
    model.set_window(recipe.window_at(0, step));
    const data::Batch batch = batch_of(sizes, expected("tokens"), step);
    const MicroBatch mb = micro_batch(batch, 0, batch.rows);
    gradients.begin_step();
    HeapArena arena;
    Tape tape(arena, {.sink = &gradients});
    Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
    const Value hidden_TD = model.decoder().forward(c, tape.leaf(mb.ids)).hidden_TD;
    logits = reference::load(model.decoder().logits(c, hidden_TD).tensor());
    const HeadResult h =
        model.decoder().head(c, {.mode = HeadMode::recompute, .chunk = 64}, hidden_TD, tape.leaf(mb.targets));
    const Array log_probs = reference::load(h.logprob_T.tensor());
    const auto n = static_cast<double>(log_probs.size());
    std::vector<double> memory(log_probs.size());
    const Tensor seed(memory.data(), {mb.rows.count}, precision.stream);
    reference::store(seed, Array(log_probs.size(), -1 / n));
    tape.seed(h.logprob_T, seed);
    Backward(tape).run();
    EXPECT_TRUE(gradients.finish_step().empty());
    double loss = 0;
    for (const double lp : log_probs) loss -= lp / n;
    return loss;
  }

  double rate(int64_t step) const { return recipe.learning_rate(0, step); }

  Sizes sizes;
  Recipe recipe;
  Precision precision;
  SafetensorsFile fixture_file;
  Model model;
  GradientBuffer gradients;
  Array logits;
};

/// The recipe's optimizers in double: groups and schedules are those of the fast ones.
class DoubleOptimizer {
 public:
  explicit DoubleOptimizer(Record& r)
      : record_(r), config_(r.recipe.optimizer), run_(r.recipe.optimizer_run()) {
    const ParameterTable& table = r.model.weights().table();
    for (int i = 0; i < table.size(); ++i)
      params_.push_back({.name = table[i].name, .shape = table[i].shape, .row_splits = table[i].row_splits});
    groups_ = resolve_groups(params_, config_.groups);
    first_.resize(params_.size());
    second_.resize(params_.size());
  }

  void step(int64_t step) {
    for (size_t i = 0; i < params_.size(); ++i) {
      const Tensor master = record_.model.weights().master(static_cast<int>(i));
      Array w = reference::load(master), g = record_.gradient(static_cast<int>(i));
      first_[i].resize(w.size()), second_[i].resize(w.size());
      const double lr = record_.rate(step) * groups_[i].lr_multiplier;
      if (groups_[i].optimizer == "adamw")
        reference::adamw(w, first_[i], second_[i], g, config_.adamw, lr, 0, step + 1, 1);
      else
        muon(params_[i], w, first_[i], g, step, lr);
      reference::store(master, w);
    }
    record_.model.weights().refresh_compute();
  }

 private:
  void muon(const ParamView& p, Array& w, Array& momentum, const Array& g, int64_t step, double lr) const {
    const int64_t cols = p.matrix_cols();
    int64_t begin = 0;
    for (const int64_t rows : p.row_splits.empty() ? std::vector<int64_t>{p.matrix_rows()} : p.row_splits) {
      const auto cut = [&](const Array& a) {
        return Array(a.begin() + begin, a.begin() + begin + rows * cols);
      };
      Array block = cut(w), m = cut(momentum);
      reference::muon(block, m, cut(g), rows, cols, config_.muon,
                      muon_momentum(config_.muon, run_.total_steps, step), lr, 0, 1);
      std::copy(block.begin(), block.end(), w.begin() + begin);
      std::copy(m.begin(), m.end(), momentum.begin() + begin);
      begin += rows * cols;
    }
  }

  Record& record_;
  OptimizerConfig config_;
  OptimizerRun run_;
  std::vector<ParamView> params_;
  std::vector<ParamGroup> groups_;
  std::vector<Array> first_, second_;
};

class RecordCase : public ::testing::TestWithParam<const char*> {};

TEST_P(RecordCase, FirstStepMatchesPyTorch) {
  for (const auto& [precision, tolerance] : {std::pair{Precision::f64(), 1e-9}, {Precision::f32(), 1e-4}}) {
    Record r(GetParam(), precision);
    const double loss = r.pass(0);
    EXPECT_NEAR(loss, r.expected("losses")[0], tolerance);
    EXPECT_LE(relative_difference(r.logits, r.expected("logits")), tolerance);
    double worst = relative_difference(r.logits, r.expected("logits"));
    for (int i = 0; i < r.model.weights().size(); ++i) {
      const double difference = relative_difference(r.gradient(i), r.expected_gradient(i));
      EXPECT_LE(difference, tolerance) << r.name(i);
      worst = std::max(worst, difference);
    }
    RecordProperty(precision.stream == DType::f64 ? "f64" : "f32", fmt::format("{:.1e}", worst));
  }
}

TEST_P(RecordCase, TwentyStepsInDoubleFollowPyTorch) {
  Record r(GetParam(), Precision::f64());
  DoubleOptimizer optimizer(r);
  const Array expected = r.expected("losses");
  for (int64_t step = 0; step < r.sizes.steps(); ++step) {
    EXPECT_NEAR(r.pass(step), expected[static_cast<size_t>(step)], 1e-9) << "step " << step;
    optimizer.step(step);
  }
}

TEST_P(RecordCase, TwentyStepsInSinglePrecisionFollowPyTorch) {
  Record r(GetParam(), Precision::f32());
  Optimizer optimizer(r.recipe.optimizer, optimizer_views(r.model.weights(), r.gradients),
                      r.recipe.optimizer_run());
  const Array expected = r.expected("losses");
  for (int64_t step = 0; step < r.sizes.steps(); ++step) {
    EXPECT_NEAR(r.pass(step), expected[static_cast<size_t>(step)], 1e-4) << "step " << step;
    optimizer.step({.lr = r.rate(step)});
    r.model.weights().refresh_compute();
  }
}

TEST_P(RecordCase, AnotherWindowIsNoticed) {
  Record r(GetParam(), Precision::f64());
  const double loss = r.pass(0);
  r.recipe.phases[0].window_growth = 0;  // the whole window from the start
  EXPECT_GT(std::abs(r.pass(0) - loss), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Oracle, RecordCase, ::testing::Values("even", "odd", "wide"),
                         [](const auto& info) { return std::string(info.param); });

/// The blocks of keys that the script visits for block q: partial and full ones, newest first, each list cut
/// to the window.
std::vector<int64_t> visited_blocks(const std::vector<int64_t>& docs, int64_t block, int64_t q,
                                    int64_t window) {
  const auto low = [&](int64_t b) { return docs[static_cast<size_t>(b * block)]; };
  const auto high = [&](int64_t b) { return docs[static_cast<size_t>(b * block + block - 1)]; };
  std::vector<int64_t> partial, full;
  for (int64_t k = q; k >= 0; --k) {
    const bool any = low(q) <= high(k) && high(q) >= low(k);
    const bool all = q > k && low(q) == high(k) && high(q) == low(k);
    if (all)
      full.push_back(k);
    else if (any)
      partial.push_back(k);
  }
  const auto keep = [](std::vector<int64_t>& list, int64_t n) {
    list.resize(std::min(list.size(), static_cast<size_t>(std::max<int64_t>(0, n))));
  };
  keep(partial, std::max<int64_t>(window - static_cast<int64_t>(full.size()), 1));
  keep(full, window - 1);
  full.insert(full.end(), partial.begin(), partial.end());
  return full;
}

TEST(Record, MaskIsTheScripts) {
  constexpr int64_t kBlock = 128, kTokens = 24 * kBlock;
  const Recipe recipe = load_recipe(INGOT_SOURCE_DIR "/recipes/sources/modded-nanogpt.toml", {});
  for (const uint64_t density : {1u, 700u, 5000u}) {  // mean tokens of a document; 1: one document
    const Random random(11, RandomPurpose::test, density);
    std::vector<int64_t> docs, starts;
    for (int64_t t = 0; t < kTokens; ++t) {
      const bool first = density > 1 && random.below(static_cast<uint64_t>(t), density) == 0;
      docs.push_back((t > 0 ? docs.back() : 0) + (first ? 1 : 0));
      starts.push_back(t == 0 || first ? t : starts.back());
    }
    for (const int64_t step : {0, 300, 1062, 1770})
      for (const bool half : {false, true}) {
        Decoder d(recipe.model);
        d.set_window(recipe.window_at(0, step));
        const int64_t tokens = d.config().window_of(half ? 1 : 0);
        // 0 for half of one block.
        const int64_t script = recipe.window_at(0, step) / kBlock / (half ? 2 : 1);
        for (int64_t t = 0; t < kTokens; ++t) {
          const std::vector<int64_t> blocks = visited_blocks(docs, kBlock, t / kBlock, script);
          const AttentionWindow window{tokens, kBlock, starts[static_cast<size_t>(t)]};
          const int64_t first =
              starts[static_cast<size_t>(t)] + window.first(t - starts[static_cast<size_t>(t)]);
          for (int64_t b = 0; b <= t / kBlock; ++b) {
            // A block is visible from some key on, so both of its ends are tested.
            const bool visited = std::find(blocks.begin(), blocks.end(), b) != blocks.end();
            for (const int64_t j : {b * kBlock, b * kBlock + kBlock - 1, t}) {
              if (j / kBlock != b || j > t) continue;
              const bool seen = visited && docs[static_cast<size_t>(j)] == docs[static_cast<size_t>(t)];
              ASSERT_EQ(j >= first, seen)
                  << "token " << t << ", key " << j << ", step " << step << ", half " << half;
            }
          }
        }
      }
  }
}

}  // namespace ingot::modded_nanogpt_oracle_test
