// A recipe: everything that a run is, declared once (base/config.h). docs/recipes.md explains it by example.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/config.h"
#include "nn/weights.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/data_recipe.h"
#include "train/evaluation_recipe.h"
#include "train/memory_recipe.h"
#include "train/parallel_recipe.h"
#include "train/post_recipe.h"
#include "train/rl_recipe.h"

namespace ingot {

enum class PrecisionChoice { f32, bf16 };
constexpr auto enum_names(PrecisionChoice) {
  return names_in_order<PrecisionChoice>("f32", "bf16");
}

/// What a branch does with the optimizer's state of its trunk.
enum class BranchOptimizer : uint8_t { keep, reset, convert };
constexpr auto enum_names(BranchOptimizer) {
  return names_in_order<BranchOptimizer>("keep", "reset", "convert");
}

struct RunConfig {
  std::string folder = "runs/run";
  int64_t seed = 1;
  PrecisionChoice precision = PrecisionChoice::f32;
  std::string start_from, branch_from;
  BranchOptimizer branch_optimizer = BranchOptimizer::keep;
  int64_t log_every = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("folder", folder, "where the run lives: config, metrics, samples, checkpoints, report");
    v.fixed("seed", seed, "initial weights, data order and samples follow from it", any_integer());
    v.fixed("precision", precision, "type of products: f32, or bf16 operands with fp32 sums");
    v("start_from", start_from,
      "first weights: those of this run, import or checkpoint; empty: initial ones from the seed");
    v("branch_from", branch_from,
      "begin where this run or checkpoint stands: weights, data, counters; phases count from its first step");
    v("branch_optimizer", branch_optimizer, "its optimizer's state: keep it, reset it, or convert it");
    v("log_every", log_every,
      "steps between lines of the log; 0: each of up to 100 steps, about a hundred of more, and one a "
      "minute",
      up_to(bounds::kSteps));
  }
};

struct SourceWeight {
  std::string source;
  double weight = 1;
  template <class Visitor>
  void visit(Visitor& v) {
    v("source", source, "name of a source");
    v("weight", weight, "its share in this phase (0: none)", up_to(bounds::kWeight));
  }
};

/// [[phases.batches]]: another batch size, from a number of tokens or a loss on.
struct BatchChange {
  std::optional<int64_t> tokens;
  std::optional<double> loss;
  int64_t batch = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("tokens", tokens, "from this many tokens of the phase on", between(1, bounds::kTokens));
    v("loss", loss, "or once the mean loss of the last steps is at most this", positive(1e6));
    v("batch", batch, "sequences per step from then on", between(1, bounds::kBatch));
  }
};

/// How far a phase has come in its batch sizes; part of a checkpoint.
struct BatchProgress {
  int64_t level = 0;    ///< changes made so far
  int64_t samples = 0;  ///< sequences consumed in the phase
  double loss_sum = 0,
         loss_weight = 0;  ///< running mean of the loss: sums with weights falling by 0.95 a step
};

/// What a change of the batch size does to the learning rate.
enum class BatchRate { same, sqrt };
constexpr auto enum_names(BatchRate) {
  return names_in_order<BatchRate>("same", "sqrt");
}

struct PhaseConfig {
  std::string name = "pretrain";
  std::string kind = "text";
  int64_t steps = 1000;
  int64_t batch = 16;       ///< sequences per step
  int64_t micro_batch = 0;  ///< sequences per forward of a data rank; 0: all of its share
  int64_t sequence = 256;
  std::vector<BatchChange> batches;
  BatchRate batch_rate = BatchRate::same;
  double lr = 1e-3;
  ScheduleKind schedule = ScheduleKind::wsd;
  int64_t warmup = 50;
  double min_lr_ratio = 0.0;
  double decay_fraction = 0.2;
  DecayShape decay_shape = DecayShape::linear;
  std::vector<ScheduleSegment> segments;
  std::vector<SourceWeight> weights;
  bool continues = false;
  double z_coefficient = 0;
  std::string objective = "cross_entropy";
  double rope_theta = 0, target_loss = 0;
  int64_t window_growth = 0;
  std::string target_source;
  bool target_ends = false;
  std::vector<std::string> published_tokens;
  std::optional<ChatConfig> chat;
  std::optional<PreferenceConfig> preference;
  std::optional<OwnPairsConfig> own_pairs;
  std::optional<RlConfig> rl;
  PhaseOptimizerConfig optimizer;
  bool freeze_balance = false;
  std::vector<std::string> tasks;
  std::string gate;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "of the phase");
    v.fixed("kind", kind,
            "what it trains on and minimises: text, or a kind of post-training (docs/posttraining.md)");
    v.fixed("steps", steps, "optimizer steps", between(1, bounds::kSteps));
    v.fixed("batch", batch, "sequences per step", between(1, bounds::kBatch));
    v("micro_batch", micro_batch, "sequences per forward pass of a rank; 0: its whole share of the batch",
      up_to(bounds::kBatch));
    v.fixed("sequence", sequence, "tokens per sequence", between(1, bounds::kSequence));
    v.fixed("batches", batches, "changes of the batch size, in order");
    v.fixed("batch_rate", batch_rate,
            "learning rate after a change: the same, or times sqrt(new batch / first batch)");
    v("lr", lr, "peak learning rate", positive(1e38));
    v("schedule", schedule, "constant, cosine, wsd, linear or piecewise");
    v("warmup", warmup, "steps of linear warm-up", up_to(bounds::kSteps));
    v("min_lr_ratio", min_lr_ratio, "last learning rate as a fraction of the peak", up_to(1e6));
    v("decay_fraction", decay_fraction, "wsd: share of the phase in which the rate decays", up_to(1));
    v("decay_shape", decay_shape, "wsd: linear, cosine or sqrt");
    v("segments", segments, "piecewise: segments");
    v("continues", continues,
      "learning rate: the schedule of the phase before spans this one too; lr and schedule here are ignored");
    v("weights", weights, "mixture of this phase; empty: the sources' weights");
    v("z_coefficient", z_coefficient, "output z-loss: coefficient of logsumexp^2", up_to(1e6));
    v("objective", objective,
      "what is minimised: cross_entropy, or what a program using the library has registered");
    v.fixed("rope_theta", rope_theta, "base of the rotation from this phase on; 0: as before (the model's)",
            zero_or(1, bounds::kTheta));
    v.fixed("window_growth", window_growth,
            "the window grows linearly to this many tokens over the phase, in whole blocks; 0: as before",
            up_to(bounds::kSequence));
    v("target_source", target_source, "source whose validation loss has a target");
    v("target_loss", target_loss, "step and training time are noted when that loss is at most this; 0: none",
      up_to(1e6));
    v("target_ends", target_ends, "the run ends at the target, saved");
    v("published_tokens", published_tokens, "token counts of the recipe's source, for the plan");
    v.fixed("chat", chat, "settings of kind chat");
    v.fixed("preference", preference, "settings of kind preference, and of own_preference");
    v.fixed("own_pairs", own_pairs, "settings of kind own_preference");
    v.fixed("rl", rl, "settings of kind rl");
    v("optimizer", optimizer, "what is other than in the recipe's [optimizer]");
    v("freeze_balance", freeze_balance, "the selection biases of routers stay as they are");
    v("tasks", tasks, "tasks during this phase, as evaluation.tasks; empty: those");
    v("gate", gate,
      "the phase begins only if a task says so, e.g. \"arithmetic.exact >= 0.8\"; empty: always");
  }
  void validate(ConfigErrors& errors) const;
  /// Over `total_steps`: those of the phase and of the phases that continue it.
  ScheduleConfig resolved_schedule(int64_t total_steps) const;
  /// Batch sizes of the phase: the first, then one per change.
  int64_t levels() const { return 1 + static_cast<int64_t>(batches.size()); }
  int64_t batch_at(int64_t level) const {
    return level == 0 ? batch : batches[static_cast<size_t>(level - 1)].batch;
  }
  /// Sequences per forward of one of `data` ranks.
  int64_t micro_at(int64_t level, int64_t data = 1) const {
    return micro_batch > 0 ? micro_batch : batch_at(level) / data;
  }
  int64_t micro(int64_t data = 1) const { return micro_at(0, data); }
  /// True if `micro` is a micro-batch for every batch size.
  bool divides(int64_t micro) const {
    for (int64_t level = 0; level < levels(); ++level)
      if (batch_at(level) % micro != 0) return false;
    return true;
  }
  /// The factor of batch_rate on the learning rate.
  double rate_factor(int64_t level) const;
  double batch_fitted = 1;  ///< not of recipes: the first batch over the one that the recipe says
  /// Counts a step that was made with the current batch, then makes the changes that are due.
  void after_step(BatchProgress& progress, double loss) const;
  /// Steps at each level if no loss ever causes a change; 0 for levels that are not reached.
  std::vector<int64_t> planned_steps() const;
  /// Tokens of those steps: at least what the phase consumes where batches only grow.
  int64_t tokens() const;
};

struct CheckpointConfig {
  int64_t every = 500;
  int64_t keep_last = 2;
  template <class Visitor>
  void visit(Visitor& v) {
    v("every", every, "steps between checkpoints; 0: only at the end of phases", up_to(bounds::kSteps));
    v("keep_last", keep_last, "older ones are deleted; 0: keep all", up_to(1e9));
  }
};

struct HealthConfig {
  double spike_sigma = 8;
  int64_t spike_patience = 20;
  int64_t dead_patience = 10;
  int64_t digest_every = 1, agree_every = 50, replay_every = 500;
  bool check_at_rest = false;
  template <class Visitor>
  void visit(Visitor& v) {
    v("spike_sigma", spike_sigma, "a loss this many deviations above its recent mean is a spike; 0: off",
      up_to(1e6));
    v("spike_patience", spike_patience, "steps a spike may last before the run stops", up_to(bounds::kSteps));
    v("dead_patience", dead_patience, "steps with a gradient of 0 before the run stops; 0: off",
      up_to(bounds::kSteps));
    v("digest_every", digest_every, "steps between digests of each rank's gradient (docs/guard.md); 0: off",
      up_to(bounds::kSteps));
    v("agree_every", agree_every,
      "steps between checks, also before every checkpoint, that ranks hold the same bits; 0: off",
      up_to(bounds::kSteps));
    v("replay_every", replay_every, "steps between those whose gradients are made twice and compared; 0: off",
      up_to(bounds::kSteps));
    v("check_at_rest", check_at_rest,
      "every update first checks that weights and optimizer state are as the one before left them");
  }
};

struct Recipe {
  RunConfig run;
  ModelConfig model;
  TokenizerConfig tokenizer;
  DataConfig data;
  OptimizerConfig optimizer;
  std::vector<PhaseConfig> phases = {PhaseConfig{}};
  CheckpointConfig checkpoint;
  EvaluationConfig evaluation;
  SampleConfig samples;
  HealthConfig health;
  MemoryConfig memory;
  ParallelConfig parallel;
  template <class Visitor>
  void visit(Visitor& v) {
    v("run", run, "the run");
    v.fixed("model", model, "architecture; `preset` first, then single fields");
    v("tokenizer", tokenizer, "text to tokens");
    v("data", data, "text sources");
    v("optimizer", optimizer, "which optimizer updates what, and how");
    v("phases", phases, "training phases, in order");
    v("checkpoint", checkpoint, "saving");
    v("evaluation", evaluation, "validation during the run");
    v("samples", samples, "text written during the run");
    v("health", health, "what stops a run that goes wrong");
    v("memory", memory, "what is kept and what is recomputed");
    v("parallel", parallel, "how many ranks share the work");
  }
  void validate(ConfigErrors& errors) const;
  /// Makes every batch divide among the data ranks in micro-batches, as parallel.batch_fit says; Error where
  /// it refuses or nothing would be left. The names of phases with what became of their batches.
  std::vector<std::string> fit_batches();
  int64_t total_steps() const;
  OptimizerRun optimizer_run() const { return {total_steps(), static_cast<uint64_t>(run.seed)}; }
  /// Types of the model that is trained, its masters included.
  Precision model_precision() const;
  /// Ranks with different sequences; before ranks have started as many as the recipe names.
  int64_t data_ranks() const { return std::max<int64_t>(1, parallel.data); }
  /// Learning rate of step `step` (0-based) of a phase, without the batch's factor.
  double learning_rate(size_t phase, int64_t step) const;
  /// The phase whose lr and schedule hold in `phase`: itself, or the one it continues.
  size_t schedule_phase(size_t phase) const;
  /// Steps over which that phase's schedule extends.
  int64_t schedule_steps(size_t phase) const;
  /// Base of the rotation in a phase: the last one that it or a phase before it names, else the model's.
  double rope_theta_of(size_t phase) const;
  /// The window after `step` steps of a phase: window_growth * step / steps, rounded up to whole blocks.
  int64_t window_at(size_t phase, int64_t step) const;
};

/// The keys of recipes that had other names in earlier versions.
std::span<const RenamedKey> renamed_recipe_keys();
/// File (may be empty) and overrides. The model's preset comes first, then the fields that the recipe names.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides);
/// The same from a tree of values.
Recipe recipe_from_tree(ConfigNode tree, const std::vector<std::string>& overrides);
/// Adds to a recorded recipe, which names every key that its program knew, those that came later and whose
/// default is another than what that program did.
void add_later_keys(ConfigNode& recorded);
/// A recipe from its JSON or TOML text as a run recorded it, with those keys.
Recipe recipe_from_toml(const std::string& text, const std::string& where);

}  // namespace ingot
