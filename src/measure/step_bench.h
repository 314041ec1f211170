// One training step outside any run, timed: forward, backward, clipping and the optimizer, as the trainer
// runs them, on random tokens. Trials take turns with measurements of the fp32 peak P, so that a share of P
// is of the same minute. What `ingot bench step` prints.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/spread.h"
#include "train/engine.h"

namespace ingot {

/// A step of a preset's model on text that is never read.
struct PresetStep {
  std::string preset;
  int64_t batch = 12, length = 256;
  int64_t micro = 0;  ///< sequences per forward; 0: all
  int64_t vocab = 0;  ///< 0: the preset's, or 8192
  bool bf16 = false;
};
/// Its recipe; `fields` override it ("--model.layers=2").
Recipe preset_recipe(const PresetStep& step, const std::vector<std::string>& fields);

/// The engine of the recipe's first phase at its first step, on one rank. Error where the model has no
/// vocabulary, or for a memory.limit: a single step has no plan that would choose what to keep for it.
std::unique_ptr<TrainEngine> engine_at_start(const Recipe& recipe);

/// Tokens drawn evenly from the vocabulary, rows whole documents, every target counted. A pure function of
/// `step`.
data::Batch random_batch(int64_t rows, int64_t length, int64_t vocabulary, uint64_t step);

struct StepTrial {
  double peak_before = 0, peak_after = 0;  ///< GFLOP/s, fp32
  double seconds = 0, passes = 0, update = 0;
  double processor = 0;  ///< seconds of all threads together
};

struct StepBenchReport {
  std::string model, precision, isa;
  int threads = 1;
  int64_t batch = 0, micro_batch = 0, length = 0;
  int64_t parameters = 0;
  double flops_per_token =
      0;            ///< 6 N + 12 T C a layer (models/decoder.h), the convention of published shares
  double loss = 0;  ///< of the last trial
  std::vector<StepTrial> trials;
  TapeProfile profile;  ///< of all trials

  double peak() const;  ///< P: median of the measurements before and after, GFLOP/s
  Spread tokens_per_second() const;
  Spread share_of_peak() const;  ///< each trial with the mean of its two measurements; 1 is all
};

/// Who measures in turns with other programs: `next` is asked before each trial and ends them with false (the
/// first call: after the warm-up), `done` hears of each.
struct StepBenchPace {
  std::function<bool(const StepBenchReport&)> next;
  std::function<void(const StepBenchReport&)> done;
};

/// Runs the recipe's first phase's shape. `warm_up` steps do not count; with a pace `trials` is the most.
StepBenchReport bench_step(const Recipe& recipe, int trials, int warm_up, const StepBenchPace& pace = {});

/// Tokens per second, share of P, and with `ops` a table of them.
std::string to_text(const StepBenchReport& report, bool ops);
/// {"format": 1, "model", "precision", "isa", "threads", "batch", "micro_batch", "length", "parameters",
/// "flops_per_token", "loss", "peak_gflops", "tokens_per_second", "share_of_peak", "trials": [...], "ops":
/// [...]}; docs/measuring.md has the fields.
std::string to_json(const StepBenchReport& report);
/// One line: the newest trial as in "trials"; before the first {"ready": true, "parameters",
/// "flops_per_token", "threads", "isa"}.
std::string trial_line(const StepBenchReport& report);

}  // namespace ingot
