// See step_bench.h.
#include "measure/step_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "base/processor_time.h"
#include "base/progress.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "measure/device_work.h"
#include "models/presets.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDirections[] = {"forward", "backward input", "backward weight"};

double trial_tokens(const StepBenchReport& r, const StepTrial& t) {
  return static_cast<double>(r.batch * r.length) / t.seconds;
}

Json trial_json(const StepBenchReport& r, const StepTrial& t) {
  return {{"seconds", t.seconds},
          {"passes_seconds", t.passes},
          {"update_seconds", t.update},
          {"processor_seconds", t.processor},
          {"tokens_per_second", trial_tokens(r, t)},
          {"peak_before_gflops", t.peak_before},
          {"peak_after_gflops", t.peak_after}};
}

std::function<double()> peak_of(DeviceKind device) {
  if (device == DeviceKind::cpu) return [] { return fma_peak_gflops(); };
  return [peak = std::make_shared<DevicePeak>(device_of(device))] { return (*peak)(); };
}

std::string ops_table(const StepBenchReport& r) {
  const auto steps = static_cast<double>(r.trials.size());
  std::vector<Column> columns{words("op"), number("calls", 0)};
  for (const char* direction : kDirections) {
    columns.push_back(number("ms", 3, 1e3, direction));
    columns.push_back(number("GFLOP/s", 1, 1, direction));
    columns.push_back(percent("of P", direction));
  }
  Table table(std::move(columns));
  double sum = 0, passes = 0;
  for (const auto& [name, p] : r.profile) {
    std::vector<Cell> cells{name, static_cast<double>(p.calls) / steps};
    for (int d = 0; d < 3; ++d) {
      const double gflops = p.seconds[d] > 0 ? p.flops[d] / p.seconds[d] * 1e-9 : 0;
      cells.insert(cells.end(), {p.seconds[d] / steps, gflops, gflops / r.peak()});
      sum += p.seconds[d] / steps;
    }
    table.add(std::move(cells));
  }
  for (const StepTrial& t : r.trials) passes += t.passes / steps;
  return text_of({table}) + fmt::format("ops {:.2f} ms, the rest of the passes {:.2f} ms (means)\n",
                                        1e3 * sum, 1e3 * (passes - sum));
}

}  // namespace

Recipe preset_recipe(const PresetStep& step, const std::vector<std::string>& more) {
  std::vector<std::string> fields{"--data.sources.0.name=random",
                                  "--data.sources.0.path=random",
                                  "--model.preset=" + step.preset,
                                  fmt::format("--phases.0.batch={}", step.batch),
                                  fmt::format("--phases.0.micro_batch={}", step.micro),
                                  fmt::format("--phases.0.sequence={}", step.length)};
  if (step.vocab > 0)
    fields.push_back(fmt::format("--model.vocab={}", step.vocab));
  else if (const ModelConfig preset = model_preset(step.preset); preset.vocab == 0)
    fields.push_back("--model.vocab=8192");
  if (step.bf16) fields.push_back("--run.precision=bf16");
  fields.insert(fields.end(), more.begin(), more.end());
  return load_recipe("", fields);
}

std::unique_ptr<TrainEngine> engine_at_start(const Recipe& recipe) {
  if (recipe.model.vocab < 2)
    throw Error("the model has no vocabulary: its preset takes the tokenizer's", "give --vocab");
  if (!recipe.memory.limit.empty())
    throw Error(
        fmt::format("memory.limit is {}, but a single step has no plan that would choose what to keep for it",
                    recipe.memory.limit),
        "name what is recomputed or moved to disk: --memory.recompute='[\"activation\", \"add_norm.h\"]', "
        "--memory.offload=...; `ingot run --plan --memory.limit=...` prints the names that it chooses");
  auto engine = std::make_unique<TrainEngine>(for_one_rank(recipe));
  engine->set_memory_policy(recipe.memory.recompute, recipe.memory.offload, ".");
  engine->load_start(real_file_system(), "");
  engine->enter(0, 0);
  return engine;
}

data::Batch random_batch(int64_t rows, int64_t length, int64_t vocabulary, uint64_t step) {
  const Random random(1, RandomPurpose::test, step);
  data::Batch b;
  b.rows = rows, b.sequence_length = length;
  b.valid_targets = rows * length;
  const auto token = [&](int64_t at) {
    return static_cast<int32_t>(random.below(static_cast<uint64_t>(at), static_cast<uint64_t>(vocabulary)));
  };
  for (int64_t i = 0; i < b.valid_targets; ++i) {
    b.tokens.push_back(token(i));
    b.targets.push_back(token(i + 1));
    b.positions.push_back(static_cast<int32_t>(i % length));
  }
  for (int64_t r = 0; r < rows; ++r)
    b.spans.push_back({static_cast<int32_t>(r * length), static_cast<int32_t>((r + 1) * length)});
  return b;
}

double StepBenchReport::peak() const {
  std::vector<double> peaks;
  for (const StepTrial& t : trials) peaks.push_back(t.peak_before), peaks.push_back(t.peak_after);
  return spread_of(std::move(peaks)).median;
}

Spread StepBenchReport::tokens_per_second() const {
  return spread_over(trials, [&](const StepTrial& t) { return trial_tokens(*this, t); });
}

Spread StepBenchReport::share_of_peak() const {
  return spread_over(trials, [&](const StepTrial& t) {
    return trial_tokens(*this, t) * flops_per_token / (0.5e9 * (t.peak_before + t.peak_after));
  });
}

StepBenchReport bench_step(const Recipe& recipe, int trials, int warm_up, const StepBenchPace& pace) {
  const PhaseConfig& phase = recipe.phases.at(0);
  if (trials < 1 || warm_up < 0)
    throw Error(fmt::format("{} trials after {} steps", trials, warm_up), "give at least one trial");
  const std::unique_ptr<TrainEngine> engine = engine_at_start(recipe);
  const Decoder& decoder = engine->model().decoder();
  StepBenchReport r;
  r.model = recipe.model.preset, r.precision = name_of(recipe.run.precision), r.isa = isa_name(active_isa());
  r.threads = num_threads();
  r.batch = phase.batch, r.micro_batch = phase.micro(), r.length = phase.sequence;
  r.parameters = count_parameters(decoder).total;
  r.flops_per_token = training_flops_per_token(decoder, phase.sequence);
  r.device = compute_device();
  const DeviceCounters& counters = device_of(r.device).counters();
  const std::function<double()> peak = peak_of(r.device);
  StepCall call{.options = engine->options(0, r.micro_batch), .lr = phase.lr};
  for (int i = 0; i < warm_up + trials; ++i) {
    const data::Batch batch = random_batch(r.batch, r.length, recipe.model.vocab, static_cast<uint64_t>(i));
    call.options.profile = i < warm_up ? nullptr : &r.profile;
    if (i >= warm_up && pace.next && !pace.next(r)) break;
    StepTrial t;
    if (i >= warm_up) t.peak_before = peak();
    const std::vector<DeviceCount> before = counts_of(counters);
    const double begin = monotonic_seconds(), busy = processor_seconds();
    const StepOutcome outcome = engine->step(batch, call);
    t.seconds = monotonic_seconds() - begin;
    t.processor = processor_seconds() - busy;
    r.loss = outcome.stats.loss();
    if (i < warm_up) continue;
    const std::vector<DeviceCount> after = counts_of(counters);
    for (size_t c = 0; c < after.size(); ++c) r.device_work[c].count += after[c].count - before[c].count;
    t.peak_after = peak();
    t.passes = outcome.passes_seconds, t.update = outcome.update_seconds;
    r.trials.push_back(t);
    if (pace.done) pace.done(r);
  }
  return r;
}

std::string to_text(const StepBenchReport& r, bool ops) {
  const auto of = [&](double StepTrial::*member) {
    return spread_over(r.trials, [&](const StepTrial& t) { return 1e3 * t.*member; });
  };
  const Spread time = of(&StepTrial::seconds), tokens = r.tokens_per_second(), share = r.share_of_peak();
  std::string text = fmt::format(
      "{}, {} parameters, {}: {} x {} tokens in micro-batches of {}, {}, {} kernels\n"
      "step {:.2f} ms (fastest {:.2f}, slowest {:.2f}; passes {:.2f}, update {:.2f}, processor time {:.2f}), "
      "median of {} trials\n"
      "{:.0f} tokens/s, spread {}; loss {:.4f}\n"
      "{:.1f} % of P (spread {}): P = {:.0f} GFLOP/s of {}, median of {} before and {} after; {:.4g} FLOPs "
      "a token, 6 N + 12 T C a layer\n",
      r.model, group_digits(r.parameters), r.precision, r.batch, r.length, r.micro_batch,
      count_of(r.threads, "thread"), r.isa, time.median, time.least, time.most, of(&StepTrial::passes).median,
      of(&StepTrial::update).median, of(&StepTrial::processor).median, r.trials.size(), tokens.median,
      width_of(tokens), r.loss, 100 * share.median, width_of(share), r.peak(),
      r.device == DeviceKind::cpu ? "fp32" : "our large product of bf16", r.trials.size(), r.trials.size(),
      r.flops_per_token);
  if (r.device != DeviceKind::cpu)
    text += text_of_device(r.device, r.device_work, static_cast<double>(r.trials.size()));
  return ops ? text + ops_table(r) : text;
}

std::string trial_line(const StepBenchReport& r) {
  if (!r.trials.empty()) return trial_json(r, r.trials.back()).dump();
  return Json{{"ready", true},
              {"parameters", r.parameters},
              {"flops_per_token", r.flops_per_token},
              {"threads", r.threads},
              {"isa", r.isa}}
      .dump();
}

std::string to_json(const StepBenchReport& r) {
  Json trials = Json::array(), ops = Json::array();
  for (const StepTrial& t : r.trials) trials.push_back(trial_json(r, t));
  for (const auto& [name, p] : r.profile)
    for (int d = 0; d < 3; ++d)
      if (p.seconds[d] > 0)
        ops.push_back({{"op", name},
                       {"direction", kDirections[d]},
                       {"calls", p.calls},
                       {"seconds", p.seconds[d]},
                       {"flops", p.flops[d]}});
  Json device = Json::object();
  for (const DeviceCount& c : r.device_work) device[c.name] = c.count;
  const Json all{{"format", 1},
                 {"device", name_of(r.device)},
                 {"device_work", std::move(device)},
                 {"model", r.model},
                 {"precision", r.precision},
                 {"isa", r.isa},
                 {"threads", r.threads},
                 {"batch", r.batch},
                 {"micro_batch", r.micro_batch},
                 {"length", r.length},
                 {"parameters", r.parameters},
                 {"flops_per_token", r.flops_per_token},
                 {"loss", r.loss},
                 {"peak_gflops", r.peak()},
                 {"tokens_per_second", r.tokens_per_second()},
                 {"share_of_peak", r.share_of_peak()},
                 {"trials", std::move(trials)},
                 {"ops", std::move(ops)}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
