// AdEMAMix, bf16 moments and MuonClip against their formulas written in PyTorch (tools/oracle/make_optim.py,
// in double): 50 steps.
#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "support/optim_oracle.h"
#include "support/optim_reference.h"

namespace ingot::options_oracle_test {

using namespace test;

/// One matrix, its gradients of all steps and the rate.
struct OneMatrix {
  Floats master, grad;
  Values grads;
  ParamView view;

  OneMatrix(const Oracle& oracle, const std::string& init, const std::string& grad_name)
      : master(narrowed(oracle.values(init))), grad(master.size()), grads(oracle.values(grad_name)) {
    view = {"w", oracle.shape(init), 1, {}, master.data(), grad.data()};
  }
  void set_gradient(int64_t step) {
    const Floats g = narrowed(part(grads, step, grad.size()));
    std::copy(g.begin(), g.end(), grad.begin());
  }
};

OptimizerConfig adam_config(const std::string& kind, double weight_decay) {
  OptimizerConfig config;
  config.groups.matrices = kind;
  config.weight_decay = weight_decay;
  return config;
}

TEST(OracleOptim, AdEMAMix) {
  const Oracle oracle("ademamix");
  const Values lr = oracle.values("lr");
  for (const auto& [name, c] : oracle.notes["cases"].items()) {
    OneMatrix p(oracle, "init.w", "grad.w");
    OptimizerConfig config = adam_config("ademamix", c["weight_decay"]);
    config.adamw = {c["betas"][0], c["betas"][1], c["eps"]};
    config.ademamix = {c["betas"][2], c["alpha"], c["warmup"]};
    Optimizer optimizer(config, {p.view});
    const size_t n = p.master.size();
    Values w(p.master.begin(), p.master.end()), m(n), slow(n), v(n);
    double worst = 0, worst_double = 0;
    for (int64_t t = 1; t <= 50; ++t) {
      const double rate = lr[static_cast<size_t>(t - 1)];
      p.set_gradient(t - 1);
      optimizer.step({.lr = rate});
      reference::ademamix(w, m, slow, v, Values(p.grad.begin(), p.grad.end()), config.adamw, config.ademamix,
                          rate, config.weight_decay, t, 1.0);
      if (!kept(t)) continue;
      const Values expected = oracle.values(fmt::format("{}.param.{}", name, t));
      worst = std::max(worst, difference(p.master, expected));
      worst_double = std::max(worst_double, difference(w, expected));
    }
    RecordProperty(name, fmt::format("fp32 {:.1e} double {:.1e}", worst, worst_double));
    EXPECT_LT(worst, 2e-6) << name;
    EXPECT_LT(worst_double, 1e-13) << name;
    optimizer.for_each_state([&](const std::string& state, const Tensor& t) {
      if (t.dtype() != DType::f32) return;
      const Values expected = oracle.values(name + "." + state.substr(2));
      EXPECT_LT(difference(Floats(t.as<float>(), t.as<float>() + t.numel()), expected), 3e-6)
          << name << state;
    });
  }
}

// Moments are rounded after the step; in fp32 single elements may round the other way.
TEST(OracleOptim, Bf16Moments) {
  const Oracle oracle("ademamix");
  const Values lr = oracle.values("lr"), expected = oracle.values("bf16_adamw");
  OneMatrix p(oracle, "init.w", "grad.w"), exact(oracle, "init.w", "grad.w");
  OptimizerConfig config = adam_config("adamw", 0.1);
  Optimizer full(config, {exact.view});
  config.first_moment = config.second_moment = ValueStorage::bf16;
  Optimizer half(config, {p.view});
  for (int64_t t = 0; t < 50; ++t) {
    p.set_gradient(t);
    exact.set_gradient(t);
    half.step({.lr = lr[static_cast<size_t>(t)]});
    full.step({.lr = lr[static_cast<size_t>(t)]});
  }
  const double error = difference(p.master, expected), effect = difference(exact.master, expected);
  RecordProperty("difference", fmt::format("{:.1e}, of fp32 moments {:.1e}", error, effect));
  EXPECT_LT(error, 1e-4);
  EXPECT_GT(effect, 3 * error);
}

/// Largest causal logit per head of fixed inputs, in double.
Values max_logits(const Values& x, const Values& wq, const Values& wk, int64_t heads, int64_t kv_heads,
                  int64_t width, int64_t model) {
  const auto tokens = static_cast<int64_t>(x.size()) / model;
  const auto project = [&](const Values& w, int64_t t, int64_t row) {
    double sum = 0;
    for (int64_t i = 0; i < model; ++i)
      sum += x[static_cast<size_t>(t * model + i)] * w[static_cast<size_t>(row * model + i)];
    return sum;
  };
  Values top(static_cast<size_t>(heads), -1e300);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t s = 0; s <= t; ++s) {
        double logit = 0;
        for (int64_t d = 0; d < width; ++d)
          logit += project(wq, t, h * width + d) * project(wk, s, h / (heads / kv_heads) * width + d);
        auto& best = top[static_cast<size_t>(h)];
        best = std::max(best, logit / std::sqrt(static_cast<double>(width)));
      }
  return top;
}

Values widened(const Floats& x) {
  return {x.begin(), x.end()};
}

TEST(OracleOptim, MuonClip) {
  const Oracle oracle("muonclip");
  const int64_t width = oracle.notes["head_width"];
  for (const auto& [name, c] : oracle.notes["cases"].items()) {
    const Values x = oracle.values(name + ".x"), seen = oracle.values(name + ".max_logit");
    OneMatrix q(oracle, name + ".init.q", name + ".grad.q"), k(oracle, name + ".init.k", name + ".grad.k");
    const int64_t heads = c["heads"], kv_heads = c["kv_heads"], model = q.view.shape[1];
    const QkClipConfig clip{c["threshold"], c["alpha"]};
    k.view.name = "k";
    OptimizerConfig config;
    config.weight_decay = 0.1;
    Optimizer optimizer(config, {q.view, k.view});
    const QkClipLayer layer{heads, kv_heads, {{q.view, 0, width}}, {{k.view, 0, width}}, {}};
    Values wq = widened(q.master), wk = widened(k.master), mq(wq.size()), mk(wk.size());
    double worst = 0, worst_double = 0;
    int64_t clipped = 0;
    for (int64_t t = 0; t < 50; ++t) {
      const Values top = max_logits(x, widened(q.master), widened(k.master), heads, kv_heads, width, model);
      const Values top_double = max_logits(x, wq, wk, heads, kv_heads, width, model);
      EXPECT_LT(difference(top_double, part(seen, t, top.size())), 1e-10);
      q.set_gradient(t);
      k.set_gradient(t);
      optimizer.step({.lr = oracle.notes["lr"]});
      clipped += qk_clip(clip, layer, top);
      reference::muon(wq, mq, widened(q.grad), q.view.shape[0], model, config.muon, 0.95, 0.05, 0.1, 1);
      reference::muon(wk, mk, widened(k.grad), k.view.shape[0], model, config.muon, 0.95, 0.05, 0.1, 1);
      const QkFactors f = qk_clip_factors(clip, kv_heads, top_double);
      for (size_t i = 0; i < wq.size(); ++i) wq[i] *= f.query[i / static_cast<size_t>(width * model)];
      for (size_t i = 0; i < wk.size(); ++i) wk[i] *= f.key[i / static_cast<size_t>(width * model)];
      if (!kept(t + 1)) continue;
      const Values eq = oracle.values(fmt::format("{}.q.{}", name, t + 1));
      const Values ek = oracle.values(fmt::format("{}.k.{}", name, t + 1));
      worst = std::max({worst, difference(q.master, eq), difference(k.master, ek)});
      worst_double = std::max({worst_double, difference(wq, eq), difference(wk, ek)});
    }
    RecordProperty(name, fmt::format("fp32 {:.1e} double {:.1e}", worst, worst_double));
    EXPECT_EQ(clipped, oracle.notes["clips"][name].get<int64_t>()) << name;
    EXPECT_LT(worst, 1e-4) << name;
    EXPECT_LT(worst_double, 1e-10) << name;
  }
}

}  // namespace ingot::options_oracle_test
