// The optimizers, the balancing biases and the schedules against PyTorch and transformers (fixtures of
// tools/oracle/make_optim.py, computed in double): the double references to 1e-13, the fp32 code to fp32
// accuracy.
#include <gtest/gtest.h>

#include "optim/balance.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "support/optim_oracle.h"
#include "support/optim_reference.h"

namespace ingot::optimizer_oracle_test {

using namespace test;

/// Parameters of one fixture as the optimizer sees them.
struct Parameters {
  std::vector<std::string> names;
  std::vector<Floats> master, grad;
  std::vector<Values> grads;  // of all steps
  std::vector<ParamView> views;

  Parameters(const Oracle& oracle, const std::string& prefix, const std::vector<std::string>& names_)
      : names(names_) {
    for (const std::string& n : names) {
      master.push_back(narrowed(oracle.values(prefix + "init." + n)));
      grad.emplace_back(master.back().size());
      grads.push_back(oracle.values(prefix + "grad." + n));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const Shape shape = oracle.shape(prefix + "init." + names[i]);
      views.push_back({names[i],
                       shape,
                       shape.rank() == 3 ? shape[0] : 1,
                       {},
                       master[i].data(),
                       grad[i].data(),
                       nullptr,
                       DType::f32});
    }
  }
  void set_gradients(int64_t step) {
    for (size_t i = 0; i < grad.size(); ++i) {
      const Floats g = narrowed(part(grads[i], step, grad[i].size()));
      std::copy(g.begin(), g.end(), grad[i].begin());
    }
  }
};

TEST(OracleOptim, AdamWWithClipping) {
  const Oracle oracle("adamw");
  double worst = 0, worst_double = 0;
  for (const auto& [name, c] : oracle.notes["cases"].items()) {
    const std::string prefix = name + ".";
    Parameters p(oracle, prefix, {"matrix", "vector", "scalar"});
    OptimizerConfig config;
    config.groups.matrices = "adamw";
    config.groups.no_decay = {"vector", "scalar"};
    config.adamw = {.beta1 = c["betas"][0], .beta2 = c["betas"][1], .eps = c["eps"]};
    config.weight_decay = c["weight_decay"];
    Optimizer optimizer(config, p.views);
    const Values lr = oracle.values(prefix + "lr"), norms = oracle.values(prefix + "norm");
    std::vector<Values> w, m, v;
    for (const Floats& x : p.master) {
      w.emplace_back(x.begin(), x.end());
      m.emplace_back(x.size());
      v.emplace_back(x.size());
    }
    for (int64_t step = 1; step <= 50; ++step) {
      const double rate = lr[static_cast<size_t>(step - 1)];
      p.set_gradients(step - 1);
      const double norm = gradient_norm(p.views, 1.0).norm;
      EXPECT_NEAR(norm, norms[static_cast<size_t>(step - 1)], 1e-12 * norm);
      const double factor = clip_factor(norm, c["max_norm"]);
      optimizer.step({.lr = rate, .clip_factor = factor});
      for (size_t i = 0; i < w.size(); ++i) {
        reference::adamw(w[i], m[i], v[i], Values(p.grad[i].begin(), p.grad[i].end()), config.adamw, rate,
                         i == 0 ? config.weight_decay : 0.0, step, factor);
        if (!kept(step)) continue;
        const Values expected = oracle.values(fmt::format("{}param.{}.{}", prefix, p.names[i], step));
        worst = std::max(worst, difference(p.master[i], expected));
        worst_double = std::max(worst_double, difference(w[i], expected));
      }
    }
    optimizer.for_each_state([&](const std::string& state, const Tensor& t) {
      if (t.dtype() != DType::f32) return;
      const size_t dot = state.find('.');
      const std::string key = prefix + state.substr(dot + 1) + "." + state.substr(0, dot);
      EXPECT_LT(difference(Floats(t.as<float>(), t.as<float>() + t.numel()), oracle.values(key)), 3e-6)
          << key;
    });
  }
  RecordProperty("difference", fmt::format("fp32 {:.1e} double {:.1e}", worst, worst_double));
  EXPECT_LT(worst, 2e-6);
  EXPECT_LT(worst_double, 1e-13);
}

MuonConfig muon_config(const json& c) {
  MuonConfig config;
  config.form = enum_from<MomentumForm>(c["form"].get<std::string>(), "momentum form");
  config.nesterov = c["nesterov"];
  config.momentum = c["momentum"];
  config.scale = enum_from<MuonScale>(c["scale"].get<std::string>(), "Muon scale");
  config.momentum_start = c.value("momentum_start", 0.85);
  config.momentum_warmup = c.value("warmup", 0);
  config.momentum_end = c.value("momentum_end", 0.85);
  config.momentum_cooldown = c.value("cooldown", 0);
  return config;
}

/// One Muon update of a stack in double.
void reference_stack(Values& w, Values& m, const Values& g, const ParamView& p, const MuonConfig& config,
                     double beta, double lr, double decay) {
  const size_t size = static_cast<size_t>(p.matrix_rows() * p.matrix_cols());
  for (int64_t e = 0; e < p.matrices; ++e) {
    Values we = part(w, e, size), me = part(m, e, size);
    reference::muon(we, me, part(g, e, size), p.matrix_rows(), p.matrix_cols(), config, beta, lr, decay, 1.0);
    std::copy(we.begin(), we.end(), w.begin() + e * static_cast<int64_t>(size));
    std::copy(me.begin(), me.end(), m.begin() + e * static_cast<int64_t>(size));
  }
}

TEST(OracleOptim, MuonVariants) {
  const Oracle oracle("muon");
  const Values lr = oracle.values("lr");
  for (const auto& [name, c] : oracle.notes["cases"].items()) {
    Parameters p(oracle, "", {"wide", "tall", "square", "stack"});
    OptimizerConfig config;
    config.muon = muon_config(c);
    config.weight_decay = c["weight_decay"];
    Optimizer optimizer(config, p.views, {.total_steps = 50});
    std::vector<Values> w, m;
    for (const Floats& x : p.master) {
      w.emplace_back(x.begin(), x.end());
      m.emplace_back(x.size());
    }
    double worst = 0, worst_double = 0;
    for (int64_t step = 1; step <= 50; ++step) {
      const double rate = lr[static_cast<size_t>(step - 1)];
      const double beta = muon_momentum(config.muon, 50, step - 1);
      p.set_gradients(step - 1);
      optimizer.step({.lr = rate});
      for (size_t i = 0; i < w.size(); ++i) {
        reference_stack(w[i], m[i], Values(p.grad[i].begin(), p.grad[i].end()), p.views[i], config.muon, beta,
                        rate, config.weight_decay);
        if (!kept(step)) continue;
        const Values expected = oracle.values(fmt::format("{}.param.{}.{}", name, p.names[i], step));
        worst = std::max(worst, difference(p.master[i], expected));
        worst_double = std::max(worst_double, difference(w[i], expected));
      }
    }
    RecordProperty(name, fmt::format("fp32 {:.1e} double {:.1e}", worst, worst_double));
    EXPECT_LT(worst, 2e-6) << name;
    EXPECT_LT(worst_double, 1e-13) << name;
    if (!needs_momentum(config.muon)) continue;
    for (size_t i = 0; i < m.size(); ++i)
      EXPECT_LT(difference(m[i], oracle.values(name + ".momentum." + p.names[i])), 1e-10);
  }
}

TEST(OracleOptim, NewtonSchulz) {
  const Oracle oracle("newton_schulz");
  for (const char* name : {"wide", "tall", "square", "row", "low_rank", "zero", "tiny", "large"}) {
    const Values input = oracle.values(std::string("input.") + name);
    const Values expected = oracle.values(std::string("output.") + name);
    const Shape s = oracle.shape(std::string("input.") + name);
    EXPECT_LT(difference(reference::newton_schulz(input, s[0], s[1], {}), expected), 1e-10) << name;
    Floats x = narrowed(input);
    NewtonSchulzScratch scratch;
    newton_schulz(x.data(), s[0], s[1], {}, scratch);
    // Rounding adds directions that a low-rank matrix does not have; five steps amplify them 480 times.
    EXPECT_LT(difference(x, expected), std::string(name) == "low_rank" ? 1e-4 : 2e-5) << name;
  }
  const Values range = oracle.notes["map_range_from_0.003"].get<Values>();
  EXPECT_GT(range[0], 0.68);
  EXPECT_LT(range[1], 1.21);
  const Values in = oracle.values("map_input"), out = oracle.values("map_output");
  for (size_t i = 0; i < in.size(); ++i) {
    const double other = std::sqrt(std::max(0.0, 1 - in[i] * in[i]));
    Floats x = {static_cast<float>(in[i]), 0, 0, static_cast<float>(other)};
    NewtonSchulzScratch scratch;
    newton_schulz(x.data(), 2, 2, {}, scratch);
    EXPECT_NEAR(x[0], out[i], 1e-5) << in[i];
  }
}

TEST(OracleOptim, BalancingBias) {
  const Oracle oracle("balancing_bias");
  const json& c = oracle.notes;
  Floats bias = narrowed(oracle.values("init"));
  Floats sign_bias(bias.begin(), bias.begin() + 16);
  const BalanceConfig adamw{
      BalanceRule::adamw, c["lr"], {.beta1 = c["betas"][0], .beta2 = c["betas"][1], .eps = c["eps"]}};
  BalanceController zaya(adamw, {{"layer", 16, 17, bias.data()}});
  BalanceController sign({BalanceRule::sign, c["sign_rate"], {}}, {{"layer", 16, 16, sign_bias.data()}});
  const Values counts = oracle.values("counts"), expected = oracle.values("bias"),
               sign_expected = oracle.values("sign_bias");
  double worst = 0;
  for (int64_t step = 0; step < 50; ++step) {
    std::vector<int64_t> n;
    for (const double count : part(counts, step, 16)) n.push_back(static_cast<int64_t>(count));
    sign.step(0, n);
    n.push_back(0);
    zaya.step(0, n);
    worst = std::max({worst, difference(bias, part(expected, step, 17)),
                      difference(sign_bias, part(sign_expected, step, 16))});
  }
  RecordProperty("difference", fmt::format("{:.1e}", worst));
  EXPECT_LT(worst, 1e-6);
}

TEST(OracleOptim, SchedulesAtEveryStep) {
  const json cases = json::parse(real_file_system().read(test::fixture("optim/schedules.json")))["cases"];
  EXPECT_EQ(cases.size(), 8u);
  for (const json& c : cases) {
    ScheduleConfig config;
    config.kind = enum_from<ScheduleKind>(c["kind"].get<std::string>(), "schedule");
    config.total_steps = c["total_steps"];
    config.warmup_steps = c["warmup_steps"];
    config.min_ratio = c.value("min_ratio", 0.0);
    config.decay_steps = c.value("decay_steps", 0);
    config.decay_shape = enum_from<DecayShape>(c.value("decay_shape", "linear"), "decay shape");
    for (const json& s : c.value("segments", json::array()))
      config.segments.push_back(
          {s["until"], s["to"], enum_from<DecayShape>(s["shape"].get<std::string>(), "decay shape")});
    validate(config);
    const Values values = c["values"].get<Values>();
    for (size_t step = 0; step < values.size(); ++step)
      EXPECT_NEAR(schedule_multiplier(config, static_cast<int64_t>(step)), values[step], 1e-12)
          << c["name"] << " step " << step;
  }
}

}  // namespace ingot::optimizer_oracle_test
