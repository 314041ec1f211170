// `ingot bench step`: times a training step (forward, backward, clipping, optimizer) of the trainer's engine
// on random tokens. The peak P (fp32 of the CPU; of another device measure/device_work.h, DevicePeak) is
// measured before and after each trial.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/spread.h"
#include "measure/profile.h"
#include "train/engine.h"

namespace ingot {

/// A training step of a preset's model; its recipe names a data source that is never read.
struct PresetStep {
  std::string preset;
  int64_t batch = 12, length = 256;
  int64_t micro = 0;  ///< sequences per forward; 0: all
  int64_t vocab = 0;  ///< 0: the preset's, or 8192
  bool bf16 = false;
};
/// The recipe of the step; `fields` override it ("--model.layers=2").
Recipe preset_recipe(const PresetStep& step, const std::vector<std::string>& fields);

/// The engine of the recipe's first phase at its first step, on one rank. Throws Error if the model has no
/// vocabulary, or for a memory.limit, which needs the plan of a run.
std::unique_ptr<TrainEngine> engine_at_start(const Recipe& recipe);

/// Uniformly random tokens; each row is one document, and every target is in the loss. A pure function of
/// `step`.
data::Batch random_batch(int64_t rows, int64_t length, int64_t vocabulary, uint64_t step);

struct StepTrial {
  double peak_before = 0, peak_after = 0;  ///< GFLOP/s
  double seconds = 0, passes = 0, update = 0;
  double processor = 0;  ///< CPU seconds of all threads together
};

struct StepBenchReport {
  std::string model, precision, isa;
  int threads = 1;
  int64_t batch = 0, micro_batch = 0, length = 0;
  int64_t parameters = 0;
  double flops_per_token = 0;  ///< 6 N + 12 T C per layer (models/decoder.h), as in most publications
  double loss = 0;             ///< of the last trial
  std::vector<StepTrial> trials;
  TapeProfile profile;  ///< of all trials
  DeviceKind device = DeviceKind::cpu;
  std::vector<DeviceCount> device_work = counts_of({});  ///< of all trials

  double peak() const;  ///< P: median of the measurements before and after, GFLOP/s
  Spread tokens_per_second() const;
  Spread share_of_peak() const;  ///< of each trial, with the mean of its two measurements of P; 1: P
};

/// Interleaves the trials with those of other programs: `next` is called before each trial, first after the
/// warm-up, and ends the benchmark with false; `done` is called after each.
struct StepBenchPace {
  std::function<bool(const StepBenchReport&)> next;
  std::function<void(const StepBenchReport&)> done;
};

/// Runs steps of the recipe's first phase. `warm_up` steps are not measured; with a pace `trials` is the
/// maximum.
StepBenchReport bench_step(const Recipe& recipe, int trials, int warm_up, const StepBenchPace& pace = {});

/// Tokens per second and share of P; with `ops` also a table of the ops.
std::string to_text(const StepBenchReport& report, bool ops);
/// docs/measuring.md lists the fields.
std::string to_json(const StepBenchReport& report);
/// One line: the newest trial as in "trials"; before the first {"ready": true, "parameters",
/// "flops_per_token", "threads", "isa"}.
std::string trial_line(const StepBenchReport& report);

}  // namespace ingot
