// What a run will cost: its memory, work and shortest time, from the null device and a measurement of the
// machine. Printed at the start of every run, which refuses impossible plans, and by `ingot run --plan`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/engine.h"
#include "train/memory_on_gpu.h"
#include "train/phase_kind.h"
#include "train/prepare.h"

namespace ingot {

/// A phase at one of its batch sizes.
struct LevelPlan {
  int64_t batch = 1, micro_batch = 1;  ///< sequences per step and per forward
  int64_t steps = 0;                   ///< planned: 0 where only a loss can lead here
  double step_flops = 0;               ///< of one optimizer step's passes, all micro-batches of a rank
  double roofline_seconds = 0;  ///< shortest time of a step: FLOPs at peak, then optimizer bytes at bandwidth
  StepPlan micro;               ///< one micro-batch
};

struct PhasePlan {
  std::string name;
  HeadMode head = HeadMode::store;
  int64_t tokens = 0;             ///< of the phase
  double optimizer_flops = 0;     ///< Newton-Schulz
  std::vector<LevelPlan> levels;  ///< by batch size, in order; at least one
  SourceCost source;              ///< of what makes its batches: replies that are sampled
};

struct Preflight {
  double peak_gflops = 0;  ///< of products in the run's precision
  double f32_gflops = 0;   ///< of products in f32, as an optimizer makes them; 0: the same
  double read_gbs = 0;
  double copy_gbs = 0;  ///< of memory that is copied, as for a checkpoint; 0: not measured
  int64_t weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  int64_t scratch_bytes = 0;    ///< of the update, kept once it was made; 0 where a GPU makes it
  int64_t transient_bytes = 0;  ///< most of other ranks' weights and of unsharded gradients (full sharding)
  int64_t saved_weight_bytes = 0;  ///< masters in a checkpoint, of this rank
  int64_t saved_elements = 0;      ///< of parameters, by this rank
  int64_t snapshot_bytes = 0;      ///< a checkpoint's copy of masters and optimizer state, kept once made
  std::vector<PhasePlan> phases;
  int64_t tokens = 0;
  int64_t source_bytes = 0;     ///< of the phase that sets the peak
  int64_t task_bytes = 0;       ///< of the engine that does its evaluation tasks
  int64_t predicted_bytes = 0;  ///< peak: weights, gradients, optimizer, scratch, copy, slab, source, tasks
  int64_t process_bytes = 0;    ///< beside them: what the program had in memory before it built the model
  std::optional<MemoryOnGpu> gpu = {};  ///< what of it lies on a GPU, where one computes
  int64_t data_bytes = 0;  ///< of the tokens that the phases read: files that are mapped into memory
  int64_t total_bytes() const { return predicted_bytes + process_bytes + data_bytes; }
  /// The slab of the phase that sets the peak.
  int64_t activation_bytes() const {
    return predicted_bytes - weight_bytes - gradient_bytes - transient_bytes - optimizer_bytes -
           scratch_bytes - snapshot_bytes - source_bytes - task_bytes;
  }
  double roofline_seconds = 0;    ///< of the whole run's steps
  double validation_seconds = 0;  ///< shortest time of the validation at the end, of all tokens held out
  /// Names of the policy (memory_policy.h): the recipe's, and those chosen for its memory.limit.
  std::vector<std::string> recompute, offload, fp8;
  std::string policy_cost;  ///< what the chosen ones cost, in words; empty: none were chosen
  std::vector<std::string> warnings;
  std::vector<std::string>
      missing;                    ///< data, tokenizer and model that the recipe names and that are not there
  std::string text;               ///< the table that is printed
  std::string shortfall, remedy;  ///< why the run does not fit its memory, and what would; empty: it fits
};

/// The numbers alone, without text and shortfall: every phase, under memory.limit with activations recomputed
/// or offloaded. `gflops`, `read_gbs`: of the machine; 0: no times.
Preflight plan_engine(const TrainEngine& engine, double gflops, double read_gbs);

/// Plans every phase. Under memory.limit, activations are recomputed or offloaded, cheapest first, until the
/// run fits. `data` may be nullptr: not prepared yet. `process_bytes`: see Preflight. Throws Error where a
/// source cannot fill a sequence. The machine is measured once a process (and number of threads), in about
/// 0.1 s.
Preflight preflight(const TrainEngine& engine, const PreparedData* data, int64_t process_bytes = 0);

/// The table that is printed. `data`: as in preflight().
std::string describe_plan(const Recipe& recipe, const Model& model, const PreparedData* data,
                          const Preflight& plan);

/// All of its numbers, in bytes, seconds, FLOPs and GFLOP/s.
std::string to_json(const Preflight& plan);

/// Throws Error, with the arithmetic and a micro-batch that fits, where the predicted memory is more than the
/// limit, the machine or what is free of a GPU's.
void require_fit(const Preflight& plan);

/// The recipe with a vocabulary: model.vocab, else that of its tokenizer, else the size that a BPE tokenizer
/// is to have. Throws Error where none says it.
Recipe with_planned_vocabulary(FileSystem& fs, Recipe recipe);

/// The preflight of a recipe as a dry run: no data is prepared, no weight allocated, nothing written; models
/// and phases may be larger than this machine. Without prepared data the vocabulary is model.vocab, else the
/// size that a BPE tokenizer is to have. Throws Error where neither says it, and where an explicit
/// memory.limit cannot be met. What is missing for a start is listed, not thrown.
Preflight plan_run(FileSystem& fs, Recipe recipe);

}  // namespace ingot
