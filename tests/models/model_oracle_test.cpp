// Whole models against transformers: logits, losses and every gradient, for every family and option with
// packed documents (fixtures of tools/oracle/make_models.py), in double to 1e-9 and in fp32 to 1e-4, as max
// |difference| / max |reference|. A weight changed by 1e-2 must be detected.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "base/philox.h"
#include "checkpoint/safetensors.h"
#include "models/huggingface.h"
#include "ops/reference.h"
#include "support/support.h"
#include "tape/backward.h"

namespace ingot::model_oracle_test {

using reference::Array;
using test::relative_difference;

/// A tensor of a fixture file as doubles or ints, with its memory.
struct Loaded {
  std::vector<std::byte> bytes;
  Tensor tensor;
};

Loaded load(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* e = file.find(name);
  if (e == nullptr) fail("fixture '{}' has no '{}'", file.path(), name);
  const auto data = file.data(*e);
  Loaded l{{data.begin(), data.end()}, {}};
  Shape shape;
  for (const int64_t extent : e->shape) shape.push_back(extent);
  l.tensor = Tensor(l.bytes.data(), shape, *dtype_of_safetensors(e->dtype));
  return l;
}

struct Result {
  Array logits, log_probs;
  double loss = 0;
  std::map<std::string, Array> gradients;  // by external name
};

/// The model of config.json.
ModelConfig family_of(const std::string& folder) {
  return model_from_huggingface(real_file_system().read(folder + "/config.json"), folder + "/config.json");
}

/// Of the family that config.json names: several may have a model's tensors.
HuggingfaceLayout layout_of(const std::string& folder) {
  HuggingfaceLayout layout = huggingface_layout(family_of(folder));
  layout.family = nlohmann::json::parse(real_file_system().read(folder + "/config.json")).at("model_type");
  return layout;
}

/// With the options that its family does not have from options.toml; they change no parameter.
ModelConfig config_of(const std::string& folder) {
  if (!real_file_system().exists(folder + "/options.toml")) return family_of(folder);
  return read_config(load_toml(folder + "/options.toml"), family_of(folder));
}

/// $INGOT_MODEL_FIXTURES names another folder of models, all of which are tested (make_models.py --draws).
std::string models_folder() {
  const char* other = std::getenv("INGOT_MODEL_FIXTURES");
  return other != nullptr ? std::string(other) + "/" : test::fixture("models/");
}

class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : folder_(models_folder() + name),
        weights_file_(real_file_system(), folder_ + "/model.safetensors"),
        reference_file_(real_file_system(), folder_ + "/reference.safetensors"),
        decoder_(config_of(folder_)),
        externals_(huggingface_tensors(Decoder(family_of(folder_)), layout_of(folder_))) {}

  const Decoder& decoder() const { return decoder_; }
  const std::vector<ExternalTensor>& externals() const { return externals_; }
  const SafetensorsFile& weights_file() const { return weights_file_; }
  Array expected(const std::string& name) const {
    return reference::load(load(reference_file_, name).tensor);
  }
  bool has(const std::string& name) const { return reference_file_.find(name) != nullptr; }

  /// Runs Ingot's model; `change` may edit the weights first. Balance coefficients weigh the router losses.
  Result run(const Precision& precision, HeadMode mode, const std::function<void(WeightSet&)>& change = {},
             double aux_coefficient = 0, double z_coefficient = 0) const;

 private:
  std::string folder_;
  SafetensorsFile weights_file_, reference_file_;
  Decoder decoder_;
  std::vector<ExternalTensor> externals_;
};

Result Fixture::run(const Precision& precision, HeadMode mode, const std::function<void(WeightSet&)>& change,
                    double aux_coefficient, double z_coefficient) const {
  WeightSet weights(decoder_.table(), {}, precision);
  std::map<int64_t, Loaded> biases;
  for (const ExternalTensor& e : externals_) {
    Loaded l = load(weights_file_, e.name);
    if (e.parameter >= 0)
      copy_from_external(e, l.tensor, weights.master(e.parameter));
    else
      biases.emplace(e.layer, std::move(l));
  }
  weights.refresh_compute();
  if (change) change(weights);
  const Loaded ids = load(reference_file_, "input_ids"), targets = load(reference_file_, "targets"),
               starts = load(reference_file_, "document_starts");
  const int64_t tokens = ids.tensor.numel();
  BatchLayout rows{tokens, {}};
  std::vector<int32_t> positions;
  const auto* start = starts.tensor.as<int32_t>();
  for (int64_t d = 0; d < starts.tensor.numel(); ++d) {
    const int64_t end = d + 1 < starts.tensor.numel() ? start[d + 1] : tokens;
    rows.spans.push_back({start[d], end - start[d], 0, nullptr});
    for (int64_t t = start[d]; t < end; ++t) positions.push_back(static_cast<int32_t>(t - start[d]));
  }
  GradientBuffer gradients(decoder_.table(), {}, precision.stream);
  gradients.begin_step();
  HeapArena arena;
  Tape tape(arena, {.sink = &gradients});
  Context c{tape, weights, &rows, tape.leaf(Tensor::of(positions.data(), {tokens}))};
  for (auto& [layer, bias] : biases) c.routers[layer].bias = bias.tensor;
  DecoderOutput out = decoder_.forward(c, tape.leaf(ids.tensor));
  Result r;
  {
    Tape raw(arena, {.record = false});
    Context again{raw, weights, &rows, raw.leaf(Tensor::of(positions.data(), {tokens}))};
    again.routers = c.routers;
    r.logits = reference::load(
        decoder_.logits(again, decoder_.forward(again, raw.leaf(ids.tensor)).hidden_TD).tensor());
  }
  const HeadResult h =
      decoder_.head(c, {.mode = mode, .chunk = 16}, out.hidden_TD, tape.leaf(targets.tensor));
  r.log_probs = reference::load(h.logprob_T.tensor());
  double valid = 0;
  for (int64_t t = 0; t < tokens; ++t) valid += targets.tensor.as<int32_t>()[t] >= 0;
  for (const double lp : r.log_probs) r.loss -= lp / valid;
  std::vector<double> memory(static_cast<size_t>(tokens) + 2);
  const Tensor d_logprob(memory.data(), {tokens}, precision.stream);
  reference::store(d_logprob, Array(static_cast<size_t>(tokens), -1 / valid));
  double aux_memory = 0, z_memory = 0;
  const Tensor d_aux(&aux_memory, {1}, precision.stream), d_z(&z_memory, {1}, precision.stream);
  reference::store(d_aux, {aux_coefficient});
  reference::store(d_z, {z_coefficient});
  tape.seed(h.logprob_T, d_logprob);
  for (const BalanceLosses& b : out.balance) {
    tape.seed(b.aux, d_aux);
    tape.seed(b.z, d_z);
  }
  Backward(tape).run();
  EXPECT_TRUE(gradients.finish_step().empty());
  for (const ExternalTensor& e : externals_) {
    if (e.parameter < 0) continue;
    std::vector<double> data(static_cast<size_t>(e.shape.numel()));
    copy_to_external(e, gradients.gradient(e.parameter), Tensor::of(data.data(), e.shape));
    r.gradients[e.name] = std::move(data);
  }
  return r;
}

struct Differences {
  double logits = 0, log_probs = 0, loss = 0, gradients = 0;
  std::string worst_gradient;
  double worst() const { return std::max({logits, log_probs, loss, gradients}); }
};

Differences compare(const Fixture& f, const Result& r, const std::string& prefix = "grad.") {
  Differences d;
  d.logits = relative_difference(r.logits, f.expected("logits"));
  d.log_probs = relative_difference(r.log_probs, f.expected("log_probs"));
  d.loss = relative_difference({r.loss}, f.expected("loss"));
  double largest = 0;
  for (const auto& [name, g] : r.gradients)
    if (f.has(prefix + name))
      for (const double v : f.expected(prefix + name)) largest = std::max(largest, std::abs(v));
  for (const auto& [name, g] : r.gradients) {
    if (!f.has(prefix + name)) continue;
    const Array expected = f.expected(prefix + name);
    double scale = 0;
    for (const double v : expected) scale = std::max(scale, std::abs(v));
    // A gradient that is zero except for rounding (an expert without tokens, the bias of keys that do not
    // rotate) is compared relative to the model's largest.
    const double diff =
        relative_difference(g, expected) * scale / (scale < 1e-12 * largest ? largest : scale);
    if (diff > d.gradients) d.gradients = diff, d.worst_gradient = name;
  }
  return d;
}

class Families : public ::testing::TestWithParam<std::string> {};

TEST_P(Families, EveryTensorOfTheCheckpointIsUsedOnce) {
  const Fixture f(GetParam());
  std::map<std::string, int> seen;
  std::vector<int64_t> covered(static_cast<size_t>(f.decoder().table().size()));
  for (const ExternalTensor& e : f.externals()) {
    ++seen[e.name];
    if (e.parameter >= 0) covered[static_cast<size_t>(e.parameter)] += e.shape.numel();
    const SafetensorsEntry* entry = f.weights_file().find(e.name);
    ASSERT_NE(entry, nullptr) << e.name;
    EXPECT_EQ(entry->str(), "F32" + e.shape.str()) << e.name;
  }
  for (const SafetensorsEntry& e : f.weights_file().entries()) EXPECT_EQ(seen[e.name], 1) << e.name;
  for (int i = 0; i < f.decoder().table().size(); ++i)
    EXPECT_EQ(covered[static_cast<size_t>(i)], f.decoder().table()[i].shape.numel())
        << f.decoder().table()[i].name;
}

TEST_P(Families, DoubleMatchesTo1e9) {
  const Fixture f(GetParam());
  for (const HeadMode mode : {HeadMode::store, HeadMode::recompute}) {
    const Differences d = compare(f, f.run(Precision::f64(), mode));
    RecordProperty(mode == HeadMode::store ? "store" : "recompute", fmt::format("{:.1e}", d.worst()));
    EXPECT_LE(d.worst(), 1e-9) << "logits " << d.logits << " log_probs " << d.log_probs << " loss " << d.loss
                               << " gradients " << d.gradients << " (" << d.worst_gradient << ")";
  }
}

TEST_P(Families, Fp32MatchesTo1e4) {
  const Fixture f(GetParam());
  const Differences d = compare(f, f.run(Precision::f32(), HeadMode::recompute));
  RecordProperty("f32", fmt::format("{:.1e}", d.worst()));
  EXPECT_LE(d.worst(), 1e-4) << "logits " << d.logits << " gradients " << d.gradients << " ("
                             << d.worst_gradient << ")";
}

TEST_P(Families, AChangedWeightIsNoticed) {
  const Fixture f(GetParam());
  for (int i = 0; i < f.decoder().table().size(); ++i) {
    const Result r = f.run(Precision::f64(), HeadMode::store, [&](WeightSet& w) {
      // A random half of the elements: adding to all can be a symmetry (a softmax's shift).
      const Random coin(1, RandomPurpose::test, static_cast<uint64_t>(i));
      double* p = w.master(i).as<double>();
      p[0] += 1e-2;
      for (int64_t k = 1; k < w.master(i).numel(); ++k)
        p[k] += coin.bits(static_cast<uint64_t>(k)) % 2 ? 1e-2 : 0;
    });
    EXPECT_GT(compare(f, r).worst(), 1e-9) << f.decoder().table()[i].name;
  }
}

/// Every fixture: those of families and options, and two random configurations of each family.
std::vector<std::string> names() {
  if (std::getenv("INGOT_MODEL_FIXTURES") != nullptr) {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(models_folder()))
      all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  std::vector<std::string> all = {"gpt2",
                                  "gpt2_gelu",
                                  "llama",
                                  "llama_tied",
                                  "llama_linear",
                                  "llama_llama3",
                                  "llama_yarn",
                                  "llama_softcap",
                                  "llama_half_truncated",
                                  "llama_geglu",
                                  "llama_unrotated",
                                  "qwen3_two_bases",
                                  "qwen3_moe",
                                  "qwen3_moe_raw_weights",
                                  "mixtral",
                                  "mixtral_top3",
                                  "dots1",
                                  "dots1_groups",
                                  "deepseek_v3",
                                  "mla",
                                  "mla_direct",
                                  "mla_yarn",
                                  "zaya_kv1",
                                  "zaya_kv2",
                                  "mistral_window",
                                  "window_pattern",
                                  "smollm3",
                                  "smollm3_window"};
  for (const char* family :
       {"gpt2", "llama", "mistral", "smollm3", "qwen3", "qwen3_moe", "mixtral", "dots1", "deepseek_v3",
        "zaya", "qwen2", "olmo2", "olmo3", "phi3", "granite", "gemma", "gemma2", "gemma3_text"})
    for (const char* kind : {"narrow", "wide"}) all.push_back(fmt::format("{}_random_{}", family, kind));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Oracle, Families, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(RouterLosses, WeighIntoTheGradients) {
  for (const char* name :
       {"qwen3_moe", "qwen3_moe_raw_weights", "qwen3_moe_random_narrow", "qwen3_moe_random_wide"}) {
    const Fixture f(name);
    const Result r = f.run(Precision::f64(), HeadMode::store, {}, 0.01, 0.001);
    const Differences d = compare(f, r, "total_grad.");
    EXPECT_LE(d.gradients, 1e-9) << d.worst_gradient;
  }
}

}  // namespace ingot::model_oracle_test
