// See preflight.h.
#include "train/preflight.h"

#include <algorithm>

#include "base/build_info.h"
#include "base/progress.h"
#include "data/mixture.h"
#include "device/cpu/peak.h"

namespace ingot {
namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

StagePlan plan_stage(const Recipe& recipe, const Model& model, const StageConfig& stage, const SlotPolicy* policy,
                     const Optimizer& optimizer, double gflops, double read_gbs) {
  StagePlan p;
  p.name = stage.name;
  p.head = head_mode(recipe, model, stage);
  p.micro_batches = stage.batch / stage.micro();
  p.tokens = stage.tokens();
  StepOptions o{.head = p.head, .micro_batch = stage.micro(), .z_coefficient = stage.z_coefficient, .policy = policy};
  p.micro = plan_step(model, o, stage.micro(), stage.sequence);
  p.step_flops = p.micro.flops() * static_cast<double>(p.micro_batches);
  // An update moves at least 28 bytes per parameter (weight, gradient, two moments; three written).
  const double optimizer_bytes = 28.0 * static_cast<double>(model.decoder().table().total());
  p.optimizer_flops = optimizer.update_flops();
  p.light_seconds =
      (p.step_flops + p.optimizer_flops) / (gflops * 1e9) + optimizer_bytes / (read_gbs * 1e9);
  return p;
}

std::string describe(const Recipe& recipe, const Model& model, const PreparedData& data, const Preflight& f) {
  const ParameterCounts n = count_parameters(model.decoder());
  std::string t;
  const auto line = [&](const char* name, const std::string& value) { t += fmt::format("  {:<12} {}\n", name, value); };
  line("model", fmt::format("{} parameters, {} active per token ({} without embedding)", format_count(static_cast<double>(n.total)),
                            format_count(static_cast<double>(n.active)),
                            format_count(static_cast<double>(n.active_without_embedding))));
  for (const auto& s : data.sources)
    line("data", fmt::format("{}: {} tokens to train on, {} to validate", s.name(),
                             format_count(static_cast<double>(s.train()->tokens())),
                             s.has_split("validation") ? format_count(static_cast<double>(s.validation()->tokens())) : "none"));
  for (size_t i = 0; i < f.stages.size(); ++i) {
    const StageConfig& s = recipe.stages[i];
    line("stage", fmt::format("{}: {} steps x {} sequences x {} tokens = {} tokens; {} micro-batch{} of {}; lr {} ({})", s.name,
                              s.steps, s.batch, s.sequence, format_count(static_cast<double>(s.tokens())),
                              f.stages[i].micro_batches, f.stages[i].micro_batches == 1 ? "" : "es", s.micro(), s.lr,
                              enum_name(s.schedule)));
    static const char* const kHeads[] = {"store", "recompute", "gradient"};
    line("", fmt::format("step: {:.1f} GFLOP and {:.1f} in the optimizer, at least {}; activations {:.2f} GiB (head {})", f.stages[i].step_flops * 1e-9,
                         f.stages[i].optimizer_flops * 1e-9,
                         format_seconds(f.stages[i].light_seconds), gib(f.stages[i].micro.memory.slab_bytes),
                         kHeads[static_cast<int>(f.stages[i].head)]));
  }
  const bool bf16 = recipe.run.precision == PrecisionChoice::bf16;
  line("types", fmt::format("weights {}, gradients f32, sums f32, optimizer state f32", bf16 ? "f32 with bf16 copies" : "f32"));
  line("memory", fmt::format("{:.2f} GiB: weights {:.2f}, gradients {:.2f}, optimizer {:.2f}, checkpoint copy {:.2f}, activations {:.2f}",
                             gib(f.predicted_bytes), gib(f.weight_bytes), gib(f.gradient_bytes), gib(f.optimizer_bytes),
                             gib(f.snapshot_bytes),
                             gib(f.predicted_bytes - f.weight_bytes - f.gradient_bytes - f.optimizer_bytes - f.snapshot_bytes)));
  line("machine", fmt::format("{:.0f} GFLOP/s {}, {:.0f} GB/s", f.peak_gflops, bf16 ? "bf16" : "fp32", f.read_gbs));
  line("time", fmt::format("{} tokens, at least {} at the speed of light of this machine",
                           format_count(static_cast<double>(f.tokens)), format_seconds(f.light_seconds)));
  return t;
}

}  // namespace

HeadMode head_mode(const Recipe& recipe, const Model& model, const StageConfig& stage) {
  switch (recipe.memory.head) {
    case HeadChoice::store: return HeadMode::store;
    case HeadChoice::recompute: return HeadMode::recompute;
    case HeadChoice::gradient: return HeadMode::gradient;
    case HeadChoice::automatic: break;
  }
  const int64_t logits = stage.micro() * stage.sequence * model.config().vocab * 4;
  const int64_t memory = machine_info().memory_bytes;
  return logits <= std::min<int64_t>(memory / 8, int64_t{512} << 20) ? HeadMode::store : HeadMode::recompute;
}

Preflight preflight(const Recipe& recipe, const Model& model, const PreparedData& data, int64_t gradient_bytes,
                    const Optimizer& optimizer, const SlotPolicy* policy) {
  Preflight f;
  const MachinePeak peak = machine_peak();
  f.peak_gflops = recipe.run.precision == PrecisionChoice::bf16 ? peak.dot_gflops : peak.fma_gflops;
  f.read_gbs = peak.read_gbs;
  f.weight_bytes = model.bytes();
  f.gradient_bytes = gradient_bytes;
  f.optimizer_bytes = optimizer.state_bytes();
  int64_t slab = 0;
  std::vector<data::PlannedSource> sources;
  for (const auto& s : data.sources) sources.push_back({s.name(), s.train()->tokens()});
  std::vector<data::PlannedStage> planned;
  for (const StageConfig& s : recipe.stages) {
    f.stages.push_back(plan_stage(recipe, model, s, policy, optimizer, f.peak_gflops, f.read_gbs));
    slab = std::max(slab, f.stages.back().micro.memory.slab_bytes);
    f.tokens += s.tokens();
    f.light_seconds += f.stages.back().light_seconds * static_cast<double>(s.steps);
    data::PlannedStage stage{s.name, s.tokens(), {}};
    for (const SourceConfig& c : recipe.data.sources) {
      double weight = s.weights.empty() ? c.weight : 0;
      for (const SourceWeight& w : s.weights)
        if (w.source == c.name) weight = w.weight;
      stage.weights.push_back(weight);
    }
    planned.push_back(std::move(stage));
  }
  f.snapshot_bytes = 4 * model.decoder().table().total() + f.optimizer_bytes;
  f.predicted_bytes = f.weight_bytes + f.gradient_bytes + f.optimizer_bytes + f.snapshot_bytes + slab;
  const std::string repeats = data::repetition_warning(data::planned_use(sources, planned));
  if (!repeats.empty()) f.warnings.push_back(repeats);
  f.text = describe(recipe, model, data, f);
  const int64_t memory = machine_info().memory_bytes;
  if (f.predicted_bytes > memory)
    throw Error(fmt::format("the run needs {:.2f} GiB, but this machine has {:.2f} GiB:\n{}", gib(f.predicted_bytes), gib(memory),
                            f.text),
                "use a smaller micro_batch, sequence or model, or memory.recompute");
  return f;
}

}  // namespace ingot
