// The mixture-of-experts block, option by option, against dense PyTorch code (fixtures of
// tools/oracle/make_moe.py): output, weights, losses and all gradients, in double to 1e-9 and in fp32 on the
// fast kernels to 1e-4.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "checkpoint/safetensors.h"
#include "models/decoder.h"
#include "nn/moe/layer.h"
#include "ops/reference.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tape/backward.h"

namespace ingot::moe_oracle_test {

using reference::Array;
using test::relative_difference;

/// One case of the fixture: its settings as a model's, and its tensors.
class Block {
 public:
  explicit Block(const std::string& name)
      : name_(name),
        json_(nlohmann::json::parse(test::read_text(test::fixture("moe/blocks.json")))),
        case_(json_.at("cases").at(name)),
        file_(real_file_system(), test::fixture("moe/blocks.safetensors")) {}

  ModelConfig config() const {
    ModelConfig m;
    m.width = case_.at("width");
    m.mlp = case_.at("activation") == "geglu" ? ActivationKind::geglu : ActivationKind::swiglu;
    MoeConfig& o = m.moe;
    o.experts = case_.at("experts"), o.top_k = case_.at("top_k"), o.hidden = case_.at("hidden");
    o.shared_hidden = case_.at("shared_hidden"), o.latent = case_.at("latent");
    o.groups = case_.at("groups"), o.groups_kept = case_.at("groups_kept");
    const std::string score = case_.at("score");
    o.score = score == "sigmoid"         ? RouteScore::sigmoid
              : score == "softmax_first" ? RouteScore::softmax_first
                                         : RouteScore::softmax_last;
    o.normalize = case_.at("normalize"), o.scale = case_.at("scale");
    const std::string selection = case_.at("selection");
    o.selection = selection == "sinkhorn"        ? AssignRule::sinkhorn
                  : selection == "expert_choice" ? AssignRule::expert_choice
                                                 : AssignRule::top_k;
    o.capacity_factor = case_.at("capacity_factor");
    o.drop = case_.at("drop") == "position" ? DropRule::position : DropRule::weight;
    o.pad_to_capacity = case_.at("pad_to_capacity");
    if (case_.at("sequence")) o.sequence_aux_coefficient = coefficient("sequence");
    return m;
  }
  BatchLayout rows() const {
    BatchLayout r;
    for (const int64_t n : case_.at("documents")) {
      r.spans.push_back({r.count, n, 0, nullptr});
      r.count += n;
    }
    return r;
  }
  double coefficient(const char* loss) const { return json_.at(loss); }
  bool has(const std::string& tensor) const { return file_.find(name_ + "." + tensor) != nullptr; }
  Array values(const std::string& tensor) const {
    const SafetensorsEntry* e = file_.find(name_ + "." + tensor);
    INGOT_CHECK(e != nullptr, "no tensor {}.{}", name_, tensor);
    const auto data = file_.data(*e);
    std::vector<double> copy(data.size() / sizeof(double));
    std::memcpy(copy.data(), data.data(), data.size());
    return copy;
  }

 private:
  std::string name_;
  nlohmann::json json_, case_;
  SafetensorsFile file_;
};

/// Fixture names of our parameters.
const std::pair<const char*, const char*> kParameters[] = {
    {"router", "moe.router.weight"},          {"gate_up", "moe.experts.gate_up.weight"},
    {"down", "moe.experts.down.weight"},      {"latent_down", "moe.latent_down.weight"},
    {"latent_up", "moe.latent_up.weight"},    {"shared_gate_up", "moe.shared.gate_up.weight"},
    {"shared_down", "moe.shared.down.weight"}};

/// Runs the block; the largest relative difference of anything from the fixture.
double worst_difference(const Block& b, const Precision& precision, double change) {
  const ModelConfig config = b.config();
  ParameterTable table;
  const MoeLayer layer(table, "moe", config, 0);
  WeightSet weights(table, {}, precision);
  for (const auto& [theirs, ours] : kParameters) {
    if (!b.has(theirs)) continue;
    Array values = b.values(theirs);
    values[0] += change;
    reference::store(weights.master(table.find(ours)), values);
  }
  weights.refresh_compute();
  const BatchLayout rows = b.rows();
  const Array x = b.values("x");
  std::vector<double> x_memory(x.size()), d_y_memory(x.size()), seeds(3);
  const Tensor x_TD(x_memory.data(), {rows.count, config.width}, precision.compute),
      d_y(d_y_memory.data(), {rows.count, config.width}, precision.compute);
  reference::store(x_TD, x);
  reference::store(d_y, b.values("d_y"));
  std::vector<float> bias;
  if (b.has("bias"))
    for (const double v : b.values("bias")) bias.push_back(static_cast<float>(v));
  GradientBuffer gradients(table, {}, precision.stream);
  gradients.begin_step();
  HeapArena arena;
  Tape tape(arena, {.sink = &gradients});
  Context c{tape, weights, &rows, {}};
  if (!bias.empty()) c.routers[0].bias = Tensor::of(bias.data(), {config.moe.experts});
  const Value leaf = tape.leaf(x_TD, true);
  const MoeOutput out = layer.forward(c, leaf, {}, 0);
  double worst = relative_difference(reference::load(out.y_TD.tensor()), b.values("y"));
  tape.seed(out.y_TD, d_y);
  const std::pair<const char*, const Value*> losses[] = {
      {"aux", &out.losses.aux}, {"z", &out.losses.z}, {"sequence", &out.losses.sequence}};
  for (size_t i = 0; i < 3; ++i) {
    const auto& [name, loss] = losses[i];
    EXPECT_EQ(loss->defined(), b.has(name)) << name;
    if (!loss->defined()) continue;
    worst = std::max(worst, relative_difference(reference::load(loss->tensor()), b.values(name)));
    const Tensor seed(&seeds[i], {1}, precision.stream);
    reference::store(seed, {b.coefficient(name)});
    tape.seed(*loss, seed);
  }
  Backward(tape).run();
  EXPECT_TRUE(gradients.finish_step().empty());
  worst = std::max(worst, relative_difference(reference::load(tape.gradient(leaf)), b.values("grad.x")));
  for (const auto& [theirs, ours] : kParameters)
    if (b.has(theirs))
      worst = std::max(worst, relative_difference(reference::load(gradients.gradient(table.find(ours))),
                                                  b.values(std::string("grad.") + theirs)));
  return worst;
}

std::vector<std::string> cases() {
  const auto json = nlohmann::json::parse(test::read_text(test::fixture("moe/blocks.json")));
  std::vector<std::string> names;
  for (const auto& [name, settings] : json.at("cases").items()) names.push_back(name);
  return names;
}

class MoeBlock : public ::testing::TestWithParam<std::string> {};

TEST_P(MoeBlock, EqualsPyTorch) {
  const Block b(GetParam());
  EXPECT_LE(worst_difference(b, Precision::f64(), 0), 1e-9);
  EXPECT_LE(worst_difference(b, Precision::f32(), 0), 1e-4);
  EXPECT_GT(worst_difference(b, Precision::f64(), 1e-2), 1e-4) << "a changed weight must be noticed";
}

INSTANTIATE_TEST_SUITE_P(Oracle, MoeBlock, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

}  // namespace ingot::moe_oracle_test
