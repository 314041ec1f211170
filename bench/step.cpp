// One training step of a preset on random tokens: forward, backward, clipping, AdamW, as the trainer runs
// them. Prints the median step and, per op and direction, milliseconds, GFLOP/s and percent of the machine's
// fp32 peak. bench/peers/torch_gpt.py times the same model (its defaults) in PyTorch. usage: ingot_bench_step
// [--steps N] [--preset gpt-10m] [--batch 12] [--length 256] [--vocab 65] [--micro 12]
//                         [--bf16] [--bias] [--quiet]
#include "train/step.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "device/cpu/isa.h"
#include "device/cpu/peak.h"
#include "models/config.h"
#include "optim/clip.h"
#include "optim/optimizer.h"

using namespace ingot;

namespace {

struct Settings {
  int64_t steps = 15, batch = 12, length = 256, vocab = 65, micro = 0;
  std::string preset = "gpt-10m";
  bool bf16 = false, bias = false, quiet = false;
};

Settings parse(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&](int64_t& to) { to = i + 1 < argc ? std::atoll(argv[++i]) : to; };
    if (name == "--steps") number(s.steps);
    if (name == "--batch") number(s.batch);
    if (name == "--length") number(s.length);
    if (name == "--vocab") number(s.vocab);
    if (name == "--micro") number(s.micro);
    if (name == "--preset" && i + 1 < argc) s.preset = argv[++i];
    s.bf16 |= name == "--bf16";
    s.bias |= name == "--bias";
    s.quiet |= name == "--quiet";
  }
  if (s.micro == 0) s.micro = s.batch;
  return s;
}

ModelConfig config_of(const Settings& s) {
  ModelConfig m = model_preset(s.preset);
  m.vocab = s.vocab;
  if (s.preset == "gpt-10m") {  // the peer's model
    m.mlp = MlpKind::gelu;
    m.norm_bias = m.attention_bias = m.mlp_bias = s.bias;
  }
  return m;
}

data::Batch random_batch(const Settings& s, uint64_t step) {
  const Random random(1, RandomPurpose::test, step);
  data::Batch b;
  b.rows = s.batch, b.sequence_length = s.length;
  b.valid_targets = s.batch * s.length;
  for (int64_t i = 0; i < b.valid_targets; ++i) {
    const auto token = [&](int64_t at) {
      return static_cast<int32_t>(random.below(static_cast<uint64_t>(at), static_cast<uint64_t>(s.vocab)));
    };
    b.tokens.push_back(token(i));
    b.targets.push_back(token(i + 1));
    b.positions.push_back(static_cast<int32_t>(i % s.length));
  }
  for (int64_t r = 0; r < s.batch; ++r)
    b.spans.push_back({static_cast<int32_t>(r * s.length), static_cast<int32_t>((r + 1) * s.length)});
  return b;
}

std::vector<ParamView> parameters(WeightSet& w, const GradientBuffer& gradients) {
  std::vector<ParamView> params;
  for (int i = 0; i < w.size(); ++i) {
    const ParameterSpec& spec = w.table()[i];
    ParamView p;
    p.name = spec.name, p.shape = w.master(i).shape();
    p.matrices = spec.matrices, p.row_splits = spec.row_splits;
    p.master = w.master(i).as<float>(), p.grad = gradients.gradient(i).as<float>();
    if (w.has_copy(i)) p.compute = w.compute(i).data, p.compute_dtype = w.compute(i).dtype();
    params.push_back(std::move(p));
  }
  return params;
}

void print_profile(const TapeProfile& profile, double steps, double passes_ms) {
  const double peak = fma_peak_gflops();
  std::printf("%-16s %6s | %27s | %27s | %27s\n", "op", "calls", "forward ms  GFLOP/s  %peak",
              "backward input", "backward weight");
  double sum = 0;
  for (const auto& [name, p] : profile) {
    std::printf("%-16s %6.0f |", name.c_str(), static_cast<double>(p.calls) / steps);
    for (int d = 0; d < 3; ++d) {
      const double gflops = p.seconds[d] > 0 ? p.flops[d] / p.seconds[d] * 1e-9 : 0;
      std::printf(" %10.3f %8.1f %6.1f%% |", 1e3 * p.seconds[d] / steps, gflops, 100 * gflops / peak);
      sum += 1e3 * p.seconds[d] / steps;
    }
    std::printf("\n");
  }
  std::printf("ops %.2f ms, the rest of the passes %.2f ms; fp32 peak %.0f GFLOP/s\n", sum, passes_ms - sum,
              peak);
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const Settings s = parse(argc, argv);
  Model model(config_of(s), s.bf16 ? Precision::bf16() : Precision::f32());
  model.weights().initialize(1);
  model.weights().refresh_compute();
  GradientBuffer gradients(model.weights().table(), model.weights().placement(), DType::f32);
  OptimizerConfig config;
  config.groups.matrices = OptimizerKind::adamw;
  Optimizer optimizer(config, parameters(model.weights(), gradients));
  StepRunner runner(model, gradients);
  TapeProfile profile;
  StepOptions options;
  options.micro_batch = s.micro;
  std::vector<double> times, passes, updates, processor;
  double loss = 0;
  constexpr int64_t kWarmup = 3;
  for (int64_t step = 0; step < kWarmup + s.steps; ++step) {
    const data::Batch batch = random_batch(s, static_cast<uint64_t>(step));
    options.profile = step < kWarmup ? nullptr : &profile;
    const double start = monotonic_seconds();
    const std::clock_t busy = std::clock();
    const StepStats stats = runner.run(batch, options);
    gradients.finish_step();
    const double after_passes = monotonic_seconds();
    const double scale = 1.0 / static_cast<double>(stats.valid);
    const GradNorm norm = gradient_norm(optimizer.params(), scale);
    optimizer.step({.lr = 3e-4, .grad_scale = scale, .clip_factor = clip_factor(norm.norm, 1.0)});
    const double end = monotonic_seconds();
    loss = stats.loss();
    if (step < kWarmup) continue;
    times.push_back(1e3 * (end - start));
    passes.push_back(1e3 * (after_passes - start));
    processor.push_back(1e3 * static_cast<double>(std::clock() - busy) / CLOCKS_PER_SEC);
    updates.push_back(1e3 * (end - after_passes));
  }
  std::printf(
      "%s%s %ld x %ld, %d threads, %s: median %.2f ms, fastest %.2f, slowest %.2f (passes %.2f, update "
      "%.2f), processor time %.2f, "
      "%.0f tokens/s, loss %.4f\n",
      s.preset.c_str(), s.bf16 ? " bf16" : "", long{s.batch}, long{s.length}, num_threads(),
      isa_name(active_isa()), median(times), *std::min_element(times.begin(), times.end()),
      *std::max_element(times.begin(), times.end()), median(passes), median(updates), median(processor),
      1e3 * static_cast<double>(s.batch * s.length) / median(times), loss);
  if (!s.quiet) {
    double sum = 0;
    for (const double p : passes) sum += p;
    print_profile(profile, static_cast<double>(s.steps), sum / static_cast<double>(s.steps));
  }
  return 0;
}
