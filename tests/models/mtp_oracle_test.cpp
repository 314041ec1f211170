// Multi-token prediction against modules composed from transformers' layers (tools/oracle/make_mtp.py):
// logits and losses of every depth and all gradients of the weighted sum, in double to 1e-9 and in fp32
// through a training step to 1e-4. A depth sees no token that it is to predict.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "checkpoint/safetensors.h"
#include "ops/reference.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tape/backward.h"
#include "train/step.h"

namespace ingot::mtp_oracle_test {

using reference::Array;

class MtpFixture {
 public:
  explicit MtpFixture(const std::string& name)
      : name_(name),
        json_(nlohmann::json::parse(test::read_text(test::fixture("mtp/mtp.json")))),
        file_(real_file_system(), test::fixture("mtp/mtp.safetensors")) {}

  ModelConfig config() const {
    const auto& c = json_.at("cases").at(name_);
    const auto& s = c.at("sizes");
    ModelConfig m;
    m.vocab = s.at("vocab_size"), m.width = s.at("hidden_size"), m.hidden = s.at("intermediate_size");
    m.layers = s.at("num_hidden_layers"), m.heads = s.at("num_attention_heads"),
    m.kv_heads = s.at("num_key_value_heads");
    m.head_width = s.at("head_dim"), m.norm_eps = s.at("rms_norm_eps"),
    m.context = s.at("max_position_embeddings");
    m.mtp = {c.at("depths"), c.at("shared"), json_.at("coefficient")};
    return m;
  }
  /// One row of packed documents.
  data::Batch batch() const {
    data::Batch b;
    const Array ids = values("input_ids");
    b.rows = 1, b.sequence_length = static_cast<int64_t>(ids.size());
    b.tokens.assign(ids.begin(), ids.end());
    for (const int count : json_.at("documents")) {
      const auto begin = static_cast<int32_t>(b.targets.size());
      b.spans.push_back({begin, begin + count});
      for (int i = 0; i < count; ++i) {
        b.positions.push_back(i);
        b.targets.push_back(i + 1 < count ? b.tokens[static_cast<size_t>(begin + i) + 1] : data::kMasked);
        b.valid_targets += i + 1 < count;
      }
    }
    return b;
  }
  Array values(const std::string& tensor) const {
    const SafetensorsEntry* e = file_.find(name_ + "." + tensor);
    INGOT_CHECK(e != nullptr, "no tensor {}.{}", name_, tensor);
    const std::span<const std::byte> bytes = file_.data(*e);
    std::vector<double> copy(bytes.size() / sizeof(float) + 1);  // aligned for every type
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    const DType type = e->dtype == "F64" ? DType::f64 : e->dtype == "F32" ? DType::f32 : DType::i32;
    const Tensor t(copy.data(), {static_cast<int64_t>(bytes.size()) / size_of(type)}, type);
    if (type != DType::i32) return reference::load(t);
    const auto ints = reference::load_ints(t);
    return {ints.begin(), ints.end()};
  }
  void fill(WeightSet& w) const {
    for (int i = 0; i < w.size(); ++i) reference::store(w.master(i), values(w.table()[i].name));
    w.refresh_compute();
  }

 private:
  std::string name_;
  nlohmann::json json_;
  SafetensorsFile file_;
};

/// max |found - expected| / scale.
double distance(const Array& found, const Array& expected, double scale) {
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
  return worst / scale;
}
double largest(const Array& a) {
  double m = 0;
  for (const double v : a) m = std::max(m, std::abs(v));
  return m;
}

/// All gradients against the fixture's, relative to the largest entry of any.
double gradient_distance(const MtpFixture& f, const WeightSet& w, const GradientBuffer& g, double divisor) {
  double scale = 0, worst = 0;
  for (int i = 0; i < w.size(); ++i) scale = std::max(scale, largest(f.values("grad." + w.table()[i].name)));
  for (int i = 0; i < w.size(); ++i) {
    Array found = reference::load(g.gradient(i));
    for (double& v : found) v /= divisor;
    worst = std::max(worst, distance(found, f.values("grad." + w.table()[i].name), scale));
  }
  return worst;
}

/// The stream behind the final norm.
Stream next_token(Context& c, const Decoder& decoder, const MicroBatch& mb) {
  std::vector<BalanceLosses> balance;
  Stream s = decoder.embed(c, c.tape.leaf(mb.ids));
  decoder.blocks(c, s, 0, decoder.config().layers, balance);
  decoder.finish(c, s);
  return s;
}

class MultiTokenPrediction : public ::testing::TestWithParam<const char*> {};

TEST_P(MultiTokenPrediction, EqualsTheOracleInDouble) {
  const MtpFixture f(GetParam());
  const data::Batch batch = f.batch();
  const std::vector<ShiftedTargets> ahead = shifted_targets(batch, f.config().mtp);
  const MicroBatch mb = micro_batch(batch, 0, 1, ahead);
  Model model(f.config(), Precision::f64());
  f.fill(model.weights());
  GradientBuffer gradients(model.decoder().table(), {}, DType::f64);
  gradients.begin_step();
  HeapArena arena;
  Tape tape(arena, {.sink = &gradients});
  Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
  Stream s = next_token(c, model.decoder(), mb);
  std::vector<BalanceLosses> balance;
  std::vector<Array> cotangents;
  const Array losses = f.values("losses");
  for (size_t k = 0; k <= mb.mtp.size(); ++k) {
    if (k > 0) model.decoder().predict_ahead(c, s, tape.leaf(mb.mtp[k - 1].ids), balance);
    const Tensor targets = k > 0 ? mb.mtp[k - 1].targets : mb.targets;
    const HeadResult h =
        model.decoder().head(c, {.mode = HeadMode::store}, s.hidden_TD[k], tape.leaf(targets));
    const Array logits = reference::load(model.decoder().logits(c, s.hidden_TD[k]).tensor());
    const Array expected = f.values("logits." + std::to_string(k));
    Array found = logits;
    const auto V = static_cast<size_t>(model.config().vocab);
    double loss = 0, valid = 0;
    for (size_t t = 0; t < batch.tokens.size(); ++t) {
      if (targets.as<int32_t>()[t] < 0)
        std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(t * V), V,
                    found.begin() + static_cast<std::ptrdiff_t>(t * V));
      else
        loss -= h.logprob_T.tensor().as<double>()[t], valid += 1;
    }
    EXPECT_LE(distance(found, expected, largest(expected)), 1e-9) << "depth " << k;
    EXPECT_NEAR(loss / valid, losses[k], 1e-9) << "depth " << k;
    cotangents.emplace_back(batch.tokens.size(), k > 0 ? -mb.mtp[k - 1].weight : -1.0);
    tape.seed(h.logprob_T, Tensor::of(cotangents.back().data(), {mb.rows.count}));
  }
  s = {};
  Backward(tape).run();
  EXPECT_TRUE(gradients.finish_step().empty());
  EXPECT_LE(gradient_distance(f, model.weights(), gradients, static_cast<double>(batch.valid_targets)), 1e-9);
}

TEST_P(MultiTokenPrediction, ATrainingStepEqualsTheOracle) {
  const MtpFixture f(GetParam());
  Model model(f.config(), Precision::f32());
  f.fill(model.weights());
  GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
  StepRunner runner(model, gradients);
  const data::Batch batch = f.batch();
  const Array losses = f.values("losses");
  for (const HeadMode head : {HeadMode::store, HeadMode::recompute, HeadMode::gradient}) {
    const StepStats stats = runner.run(batch, {.head = head});
    EXPECT_NEAR(stats.loss(), losses[0], 1e-5);
    ASSERT_EQ(stats.mtp.size() + 1, losses.size());
    for (size_t k = 0; k < stats.mtp.size(); ++k) EXPECT_NEAR(stats.mtp[k].loss(), losses[k + 1], 1e-5);
    EXPECT_LE(gradient_distance(f, model.weights(), gradients, static_cast<double>(batch.valid_targets)),
              1e-4);
  }
}

/// The loss of depth k at row i depends on tokens 0 .. i + k and the target at i + k + 1, on nothing after
/// it.
TEST_P(MultiTokenPrediction, SeesNoTokenThatItPredicts) {
  const MtpFixture f(GetParam());
  Model model(f.config(), Precision::f32());
  f.fill(model.weights());
  constexpr size_t kRow = 3;
  const auto logprobs = [&](size_t changed) {
    data::Batch batch = f.batch();
    if (changed < batch.tokens.size()) {
      batch.tokens[changed] = (batch.tokens[changed] + 5) % 57;
      if (changed > 0) batch.targets[changed - 1] = batch.tokens[changed];
    }
    const std::vector<ShiftedTargets> ahead = shifted_targets(batch, f.config().mtp);
    const MicroBatch mb = micro_batch(batch, 0, 1, ahead);
    HeapArena arena;
    Tape tape(arena, {.record = false});
    Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
    Stream s = next_token(c, model.decoder(), mb);
    std::vector<BalanceLosses> balance;
    std::vector<float> found;
    for (size_t k = 1; k <= mb.mtp.size(); ++k) {
      model.decoder().predict_ahead(c, s, tape.leaf(mb.mtp[k - 1].ids), balance);
      const HeadResult h = model.decoder().head(c, {}, s.hidden_TD[k], tape.leaf(mb.mtp[k - 1].targets));
      found.push_back(h.logprob_T.tensor().as<float>()[kRow]);
    }
    return found;
  };
  const auto plain = logprobs(SIZE_MAX);
  for (size_t k = 1; k <= plain.size(); ++k) {
    EXPECT_EQ(logprobs(kRow + k + 2)[k - 1], plain[k - 1]) << "depth " << k;
    EXPECT_NE(logprobs(kRow + k)[k - 1], plain[k - 1]) << "depth " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Oracle, MultiTokenPrediction, ::testing::Values("separate", "shared", "wide"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace ingot::mtp_oracle_test
