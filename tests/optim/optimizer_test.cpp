// optim/: AdamW, Newton-Schulz, Muon, clipping and the optimizer over 50 steps against plain double loops,
// and the bitwise promises (threads, instruction sets, resume).
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "device/simd/isa.h"
#include "optim/clip.h"
#include "support/optim_reference.h"

namespace ingot::optimizer_test {

using Floats = std::vector<float>;

Floats normals(size_t count, uint64_t stream, double scale = 1.0) {
  const Random random(11, RandomPurpose::test, stream);
  Floats x(count);
  for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(scale * random.normal(i));
  return x;
}

reference::Values widened(const Floats& x) {
  return {x.begin(), x.end()};
}

double max_error(const float* x, const reference::Values& y) {
  double error = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(x[i]) - y[i]));
    size = std::max(size, std::abs(y[i]));
  }
  return size > 0 ? error / size : error;
}

double rms(const Floats& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

/// Weights, gradients and bf16 copies of a few tensors in vectors that do not move.
struct Model {
  struct Spec {
    std::string name;
    Shape shape;
    int64_t matrices = 1;
    std::vector<int64_t> row_splits = {};
  };
  std::vector<Floats> master, grad;
  std::vector<std::vector<bf16>> compute;
  std::vector<ParamView> params;

  explicit Model(const std::vector<Spec>& specs) {
    for (const Spec& s : specs) {
      const size_t n = static_cast<size_t>(s.shape.numel());
      master.push_back(normals(n, 100 + master.size(), 0.02));
      grad.emplace_back(n);
      compute.emplace_back(n);
    }
    for (size_t i = 0; i < specs.size(); ++i)
      params.push_back({specs[i].name, specs[i].shape, specs[i].matrices, specs[i].row_splits,
                        master[i].data(), grad[i].data(), compute[i].data(), DType::bf16});
  }
  /// Gradients of one step: token sums, so about 1000 times a mean gradient.
  void make_gradients(uint64_t step) {
    for (size_t i = 0; i < grad.size(); ++i) {
      const Floats g = normals(grad[i].size(), 1000 * (step + 1) + i, 3.0);
      std::copy(g.begin(), g.end(), grad[i].begin());
    }
  }
};

std::vector<Model::Spec> small_model() {
  return {{"embed.weight", {40, 12}},
          {"attn.qkv.weight", {24, 16}, 1, {16, 4, 4}},
          {"mlp.experts", {3, 12, 20}, 3},
          {"proj.weight", {20, 7}},
          {"norm.weight", {33}},
          {"router.bias", {0}},
          {"big.bias", {40000}}};
}

TEST(AdamW, FiftyStepsFollowTheReference) {
  const AdamWConfig config;
  Model model({{"w", {37, 19}}});
  const size_t n = model.master[0].size();
  Floats m(n), v(n);
  reference::Values w_ref = widened(model.master[0]), m_ref(n), v_ref(n);
  std::vector<UpdateStat> stats;
  for (int64_t t = 1; t <= 50; ++t) {
    model.make_gradients(static_cast<uint64_t>(t));
    const double lr = 1e-2 / static_cast<double>(t);
    const AdamWTensor tensor{&model.params[0], m.data(), v.data(), lr, 0.1};
    const Floats before = model.master[0];
    stats = adamw_step({&tensor, 1}, config, t, 1e-3);
    reference::adamw(w_ref, m_ref, v_ref, widened(model.grad[0]), config, lr, 0.1, t, 1e-3);
    Floats change(n);
    for (size_t i = 0; i < n; ++i) change[i] = model.master[0][i] - before[i];
    EXPECT_NEAR(stats[0].update_rms, rms(change), 1e-5 * rms(change));
    EXPECT_NEAR(stats[0].weight_rms, rms(model.master[0]), 1e-5 * stats[0].weight_rms);
  }
  EXPECT_LT(max_error(model.master[0].data(), w_ref), 2e-6);
  EXPECT_LT(max_error(m.data(), m_ref), 2e-6);
  EXPECT_LT(max_error(v.data(), v_ref), 2e-6);
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(model.compute[0][i].bits, to_bf16(model.master[0][i]).bits);
}

TEST(AdamW, RefusesBadSettings) {
  EXPECT_THROW(validate(AdamWConfig{.beta1 = 1.0}), Error);
  EXPECT_THROW(validate(AdamWConfig{.eps = 0.0}), Error);
}

TEST(NewtonSchulz, FollowsTheReference) {
  for (const auto& [r, c] :
       {std::pair{1, 1}, {1, 9}, {9, 1}, {17, 33}, {33, 17}, {40, 40}, {40, 44}, {40, 45}, {130, 40}}) {
    for (const NewtonSchulzConfig& config : {NewtonSchulzConfig{}, polar_express()}) {
      Floats g = normals(static_cast<size_t>(r * c), 5);
      const reference::Values expected = reference::newton_schulz(widened(g), r, c, config);
      NewtonSchulzScratch scratch;
      newton_schulz(g.data(), r, c, config, scratch);
      EXPECT_LT(max_error(g.data(), expected), 2e-5) << r << " x " << c;
      NewtonSchulzConfig in_bf16 = config;
      in_bf16.precision = NewtonSchulzPrecision::bf16;
      Floats h = normals(static_cast<size_t>(r * c), 5);
      newton_schulz(h.data(), r, c, in_bf16, scratch);
      const double error = max_error(h.data(), expected);
      EXPECT_LT(error, 0.05) << r << " x " << c;
      if (r > 1 && c > 1) {
        EXPECT_GT(error, 1e-5) << "its operands are not bf16";
      }
    }
  }
}

/// diag(s, sqrt(1 - s^2)) has Frobenius norm 1, so its singular values reach the polynomial as they are.
std::pair<double, double> mapped(double s, const NewtonSchulzConfig& config) {
  Floats g = {static_cast<float>(s), 0, 0, static_cast<float>(std::sqrt(1 - s * s))};
  NewtonSchulzScratch scratch;
  newton_schulz(g.data(), 2, 2, config, scratch);
  EXPECT_EQ(g[1], 0.0f);
  EXPECT_EQ(g[2], 0.0f);
  return {g[0], g[3]};
}

// Five steps map [0.003, 1] into [0.68, 1.21]. The polynomial's own range is
// [0.6818, 1.2024].
TEST(NewtonSchulz, SingularValuesLandInTheBand) {
  double low = 10, high = 0, low16 = 10, high16 = 0;
  NewtonSchulzConfig rounded;
  rounded.precision = NewtonSchulzPrecision::bf16;
  for (int i = 0; i <= 4000; ++i) {
    const double s = 0.003 * std::pow(1 / 0.003, i / 4000.0);  // logarithmic; s = 1 leaves a zero beside it
    const auto [a, b] = mapped(std::min(s, 1.0), {});
    const auto [a16, b16] = mapped(std::min(s, 1.0), rounded);
    low = std::min(low, a);
    high = std::max(high, a);
    low16 = std::min(low16, a16);
    high16 = std::max(high16, a16);
    if (s < 1 - 1e-5) low = std::min(low, b), high = std::max(high, b);
  }
  RecordProperty("band",
                 fmt::format("fp32 [{:.4f}, {:.4f}] bf16 [{:.4f}, {:.4f}]", low, high, low16, high16));
  EXPECT_GE(low, 0.68);
  EXPECT_LE(high, 1.21);
  EXPECT_GE(low16, 0.64);
  EXPECT_LE(high16, 1.26);
}

// A known singular value decomposition: G = U diag(s) V^T with U and V products of reflections. O must be
// U diag(p(s)) V^T with p the polynomial on the normalised values.
TEST(NewtonSchulz, KnownDecompositionKeepsItsVectors) {
  const int n = 12, k = 20;
  const auto reflector = [](int size, uint64_t stream) {
    const Floats v = normals(static_cast<size_t>(size), stream);
    double norm = 0;
    for (const float x : v) norm += static_cast<double>(x) * static_cast<double>(x);
    return std::pair{v, norm};
  };
  const auto [u, uu] = reflector(n, 21);
  const auto [v, vv] = reflector(k, 22);
  const auto entry = [](const Floats& a, double aa, int i, int j) {
    return (i == j ? 1.0 : 0.0) - 2.0 * static_cast<double>(a[static_cast<size_t>(i)]) *
                                      static_cast<double>(a[static_cast<size_t>(j)]) / aa;
  };
  double norm = 0;
  std::vector<double> s;
  for (int i = 0; i < n; ++i) s.push_back(std::pow(0.01, i / double{n - 1}));
  for (const double x : s) norm += x * x;
  const auto compose = [&](const std::vector<double>& values) {
    Floats g(static_cast<size_t>(n * k));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < k; ++j) {
        double sum = 0;
        for (int l = 0; l < n; ++l)
          sum += entry(u, uu, i, l) * values[static_cast<size_t>(l)] * entry(v, vv, j, l);
        g[static_cast<size_t>(i * k + j)] = static_cast<float>(sum);
      }
    return g;
  };
  std::vector<double> mapped_values;
  for (const double x : s) {
    double y = x / (std::sqrt(norm) + 1e-7);
    for (int step = 0; step < 5; ++step) y = 3.4445 * y - 4.7750 * y * y * y + 2.0315 * y * y * y * y * y;
    EXPECT_GT(y, 0.68);
    EXPECT_LT(y, 1.21);
    mapped_values.push_back(y);
  }
  Floats g = compose(s);
  const Floats expected = compose(mapped_values);
  NewtonSchulzScratch scratch;
  newton_schulz(g.data(), n, k, {}, scratch);
  EXPECT_LT(max_error(g.data(), widened(expected)), 2e-5);
}

TEST(NewtonSchulz, ZeroAndEmpty) {
  Floats zero(6, 0.0f);
  NewtonSchulzScratch scratch;
  newton_schulz(zero.data(), 2, 3, {}, scratch);
  EXPECT_EQ(zero, Floats(6, 0.0f));
  newton_schulz(nullptr, 0, 3, {}, scratch);
  newton_schulz(nullptr, 3, 0, {}, scratch);
  EXPECT_DOUBLE_EQ(newton_schulz_flops(8, 8, 5), 5 * (512.0 + 512 + 1024));
  EXPECT_DOUBLE_EQ(newton_schulz_flops(4, 10, 5),
                   2 * (160.0 + 320) + (5 + 3 + 3 + 3) * 64);  // squares, two for A, Q
  EXPECT_DOUBLE_EQ(newton_schulz_flops(10, 4, 5, false), 5 * (320.0 + 128 + 320));
  EXPECT_DOUBLE_EQ(newton_schulz_flops(10, 4, 5, true, NewtonSchulzPrecision::bf16), 5 * (3 * 160.0 + 64));
}

struct MuonCase {
  MomentumForm form;
  bool nesterov;
  double momentum;
  MuonScale scale;
  int64_t warmup;
};

class MuonSteps : public ::testing::TestWithParam<MuonCase> {};

TEST_P(MuonSteps, FiftyStepsFollowTheReference) {
  const MuonCase& c = GetParam();
  MuonConfig config;
  config.form = c.form;
  config.nesterov = c.nesterov;
  config.momentum = c.momentum;
  config.scale = c.scale;
  config.momentum_warmup = c.warmup;
  const int64_t stack = 2, rows = 18, cols = 10;
  const std::vector<int64_t> splits = {10, 8};
  Model model({{"experts", {stack, rows, cols}, stack, splits}});
  const size_t n = model.master[0].size();
  Floats momentum(n);
  std::vector<reference::Values> w, m;
  const auto block = [&](const Floats& x, int64_t at, int64_t r) {
    return reference::Values(x.begin() + at, x.begin() + at + r * cols);
  };
  for (int64_t e = 0, at = 0; e < stack; ++e)
    for (const int64_t r : splits) {
      w.push_back(block(model.master[0], at, r));
      m.emplace_back(static_cast<size_t>(r * cols));
      at += r * cols;
    }
  Muon muon(config);
  for (int64_t step = 0; step < 50; ++step) {
    model.make_gradients(static_cast<uint64_t>(step));
    const double beta = c.warmup
                            ? std::min(1.0, step / static_cast<double>(c.warmup)) * (c.momentum - 0.85) + 0.85
                            : c.momentum;
    const MuonTensor tensor{&model.params[0], needs_momentum(config) ? momentum.data() : nullptr, 0.01, 0.1};
    muon.step({&tensor, 1}, step, 1e-3);
    int64_t at = 0;
    for (size_t b = 0; b < w.size(); ++b) {
      const int64_t r = splits[b % 2];
      reference::muon(w[b], m[b], block(model.grad[0], at, r), r, cols, config, beta, 0.01, 0.1, 1e-3);
      at += r * cols;
    }
  }
  int64_t at = 0;
  for (size_t b = 0; b < w.size(); ++b) {
    EXPECT_LT(max_error(model.master[0].data() + at, w[b]), 2e-5) << "block " << b;
    at += static_cast<int64_t>(w[b].size());
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, MuonSteps,
                         ::testing::Values(MuonCase{MomentumForm::sum, true, 0.95, MuonScale::match_rms, 0},
                                           MuonCase{MomentumForm::sum, false, 0.95, MuonScale::match_rms, 0},
                                           MuonCase{MomentumForm::lerp, true, 0.95, MuonScale::spectral, 20},
                                           MuonCase{MomentumForm::lerp, false, 0.9, MuonScale::none, 0},
                                           MuonCase{MomentumForm::sum, true, 0.0, MuonScale::match_rms, 0}));

// Every class of ZAYA1 matrix at an eighth of its size (the router's output as it is), with gradients whose
// spectrum decays as real ones do. A flat spectrum may sit anywhere in the polynomial's band: white noise
// [17, 256] has all its values near 1 / sqrt(17), close to the polynomial's minimum, and gets 0.16.
TEST(Muon, UpdateRmsIsAFifthOfTheRateForZayaShapes) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{128, 256}, {32, 256},  {16, 256}, {256, 128},
                                                           {256, 256}, {512, 256}, {32, 32},  {17, 256}};
  std::vector<Model::Spec> specs;
  for (const auto& [r, c] : shapes) specs.push_back({fmt::format("w{}", specs.size()), {r, c}});
  OptimizerConfig config;
  config.weight_decay = 0;
  const double lr = 0.01;
  for (const bool white : {false, true}) {
    Model model(specs);
    model.make_gradients(0);
    for (size_t i = 0; i < shapes.size() && !white; ++i)
      for (int64_t r = 0; r < shapes[i].first; ++r)
        for (int64_t c = 0; c < shapes[i].second; ++c)
          model.grad[i][static_cast<size_t>(r * shapes[i].second + c)] /= static_cast<float>(r + 1);
    Optimizer optimizer(config, model.params);
    optimizer.step({.lr = lr});
    std::string measured;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const double relative = optimizer.update_stats()[i].update_rms / lr;
      measured += fmt::format("{} {:.3f}  ", specs[i].shape.str(), relative);
      EXPECT_GT(relative, white ? 0.2 * 0.68 : 0.17) << specs[i].shape.str();
      EXPECT_LT(relative, white ? 0.2 * 1.21 : 0.23) << specs[i].shape.str();
    }
    RecordProperty(white ? "white" : "decaying", measured);
  }
}

/// What a plan counts is what steps come to hold: of one thread all of it, of two at most, whichever thread
/// is first.
TEST(Muon, ScratchIsWhatWasPlanned) {
  const int before = num_threads();
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Model model({{"a", {32, 48}}, {"largest", {64, 48}}, {"c", {16, 16}}, {"d", {32, 48}}});
    std::vector<Floats> momenta;
    for (const Floats& w : model.master) momenta.emplace_back(w.size());
    std::vector<MuonTensor> tensors;
    for (size_t i = 0; i < momenta.size(); ++i)
      tensors.push_back({&model.params[i], momenta[i].data(), 0.01, 0.1});
    Muon muon(MuonConfig{});
    const int64_t planned = muon.planned_scratch_bytes(tensors);
    EXPECT_EQ(muon.scratch_bytes(), 0);
    for (int64_t step = 0; step < 20; ++step) {
      model.make_gradients(static_cast<uint64_t>(step));
      muon.step(tensors, step, 1e-3);
    }
    EXPECT_LE(muon.scratch_bytes(), planned);
    if (threads == 1) {
      EXPECT_EQ(muon.scratch_bytes(), planned);
    }
  }
  set_num_threads(before);
}

TEST(Muon, ZeroGradientChangesNothing) {
  Model model({{"w", {6, 9}}});
  OptimizerConfig config;
  config.weight_decay = 0;
  const Floats before = model.master[0];
  Optimizer optimizer(config, model.params);
  optimizer.step({.lr = 1.0});
  EXPECT_EQ(model.master[0], before);
  EXPECT_EQ(optimizer.update_stats()[0].ratio(), 0.0);
}

TEST(Clip, NormFactorAndFirstBadTensor) {
  Model model({{"a", {3}}, {"empty", {0}}, {"b", {40000}}});
  model.make_gradients(1);
  double sum = 0;
  for (const Floats& g : model.grad)
    for (const float x : g) sum += static_cast<double>(x) * static_cast<double>(x);
  GradNorm norm = gradient_norm(model.params, 0.5);
  EXPECT_NEAR(norm.norm, 0.5 * std::sqrt(sum), 1e-12 * norm.norm);
  EXPECT_TRUE(norm.finite());
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
  model.grad[0][0] = 3e38f;  // its square overflows a float, not the norm
  EXPECT_TRUE(gradient_norm(model.params, 1.0).finite());
  model.grad[2][20000] = std::numeric_limits<float>::quiet_NaN();
  model.grad[2][39999] = std::numeric_limits<float>::infinity();
  norm = gradient_norm(model.params, 1.0);
  EXPECT_EQ(norm.first_bad, 2);
  const std::string text = describe_bad_gradient(model.params, norm);
  EXPECT_NE(text.find("'b' [40000] is not finite: 2 of 40000 elements, the first at index 20000"),
            std::string::npos)
      << text;
}

/// Weights and state after `steps` steps, as one list of bytes.
std::vector<std::byte> trained(Model& model, Optimizer& optimizer, int64_t from, int64_t to) {
  for (int64_t s = from; s < to; ++s) {
    model.make_gradients(static_cast<uint64_t>(s));
    const GradNorm norm = gradient_norm(model.params, 1e-3);
    optimizer.step({.lr = 0.01, .grad_scale = 1e-3, .clip_factor = clip_factor(norm.norm, 0.1)});
  }
  std::vector<std::byte> bytes;
  const auto append = [&](const void* data, size_t size) {
    const auto* p = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), p, p + size);
  };
  optimizer.for_each_state(
      [&](const std::string&, const Tensor& t) { append(t.data, static_cast<size_t>(t.bytes())); });
  for (size_t i = 0; i < model.master.size(); ++i) {
    append(model.master[i].data(), model.master[i].size() * sizeof(float));
    append(model.compute[i].data(), model.compute[i].size() * sizeof(bf16));
    append(&optimizer.update_stats()[i], sizeof(UpdateStat));
  }
  return bytes;
}

std::vector<std::byte> trained_afresh(int64_t steps) {
  Model model(small_model());
  Optimizer optimizer({}, model.params);
  return trained(model, optimizer, 0, steps);
}

TEST(Optimizer, SameBitsForAnyThreadsAndInstructionSet) {
  const int threads = num_threads();
  const Isa isa = active_isa();
  const std::vector<std::byte> expected = trained_afresh(5);
  for (const int n : {1, 2, 3}) {
    set_num_threads(n);
    EXPECT_TRUE(trained_afresh(5) == expected) << n << " threads";
  }
  set_num_threads(threads);
  for (const Isa other : kEveryIsa) {
    if (!isa_available(other)) continue;
    force_isa(other);
    EXPECT_TRUE(trained_afresh(5) == expected) << isa_name(other);
  }
  force_isa(isa);
}

TEST(Optimizer, ResumesExactly) {
  Model straight(small_model()), stopped(small_model()), resumed(small_model());
  Optimizer a({}, straight.params), b({}, stopped.params), c({}, resumed.params);
  const std::vector<std::byte> expected = trained(straight, a, 0, 8);
  trained(stopped, b, 0, 3);
  std::map<std::string, std::vector<std::byte>> saved;
  b.for_each_state([&](const std::string& name, const Tensor& t) {
    const auto* p = static_cast<const std::byte*>(t.data);
    EXPECT_TRUE(saved.emplace(name, std::vector<std::byte>(p, p + t.bytes())).second) << name;
  });
  EXPECT_TRUE(saved.contains("embed.weight.exp_avg") && saved.contains("attn.qkv.weight.momentum"));
  c.for_each_state([&](const std::string& name, const Tensor& t) {
    if (t.bytes() > 0) std::memcpy(t.data, saved.at(name).data(), static_cast<size_t>(t.bytes()));
  });
  for (size_t i = 0; i < stopped.master.size(); ++i)
    std::copy(stopped.master[i].begin(), stopped.master[i].end(), resumed.master[i].begin());
  EXPECT_EQ(c.steps(), 3);
  EXPECT_TRUE(trained(resumed, c, 3, 8) == expected);
}

TEST(Optimizer, GroupsReachTheUpdate) {
  Model model({{"a.weight", {4, 4}}, {"b.weight", {4, 4}}, {"c.bias", {4}}});
  model.make_gradients(0);
  OptimizerConfig config;
  config.groups.matrices = "adamw";
  config.groups.rules = {{.pattern = "b.*", .optimizer = {}, .lr_multiplier = 0.0, .decay_multiplier = {}}};
  config.weight_decay = 0.5;
  const Floats b = model.master[1], c = model.master[2];
  Optimizer optimizer(config, model.params);
  optimizer.step({.lr = 0.1, .grad_scale = 0.0});  // no gradient: only decay changes weights
  EXPECT_EQ(model.master[1], b);
  EXPECT_EQ(model.master[2], c);
  EXPECT_NEAR(optimizer.update_stats()[0].ratio(), 0.05 / 0.95, 1e-5);
}

TEST(Optimizer, MuonRateAndStateSize) {
  Model one({{"w", {8, 8}}}), two({{"w", {8, 8}}});
  one.make_gradients(0);
  two.make_gradients(0);
  OptimizerConfig config;
  config.weight_decay = 0;
  Optimizer a(config, one.params);
  config.muon.lr_multiplier = 3;
  config.muon.momentum = 0;
  Optimizer b(config, two.params);
  EXPECT_EQ(a.state_bytes(), 64 * 4 + 8);
  EXPECT_EQ(b.state_bytes(), 8);
  a.step({.lr = 0.01});
  b.step({.lr = 0.01});
  EXPECT_NEAR(b.update_stats()[0].update_rms, 3 * a.update_stats()[0].update_rms, 1e-5);
}

TEST(Optimizer, RefusesTwoParametersOfOneName) {
  Model model({{"w", {2}}, {"w", {3}}});
  EXPECT_THROW(Optimizer({}, model.params), Error);
}

}  // namespace ingot::optimizer_test
