// Everything that a training step needs, built once from a recipe: model, gradients, optimizer, sharding,
// memory policy and the runner of the passes. Runs, benches, dumps, profiles and plans build this and nothing
// else, so that what is planned, timed or dumped is the step that is trained.
//
// A step: forward and backward of all micro-batches -> gradient norm over all ranks -> clip -> optimizer ->
// QK-clip -> copies of the new weights to the ranks that share them -> router loads and selection biases.
#pragma once
#include <optional>

#include "checkpoint/reader.h"
#include "optim/balance.h"
#include "optim/clip.h"
#include "optim/device_update.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "parallel/ownership.h"
#include "parallel/pipeline_groups.h"
#include "parallel/shards.h"
#include "train/memory_policy.h"
#include "train/run_observer.h"
#include "train/run_ranks.h"
#include "train/step.h"

namespace ingot {

/// One step beside its data. The observer is also told which part of the step runs.
struct StepCall {
  StepOptions options;  ///< TrainEngine::options(); its observer is set from `observer`
  double lr = 0;        ///< schedule applied
  RunObserver* observer = nullptr;
  /// Sees the statistics and the gradient before any weight changes (on a device: where one is not finite, no
  /// weight has changed); what it throws ends the step there.
  std::function<void(const StepStats& stats, const GradNorm& norm)> judge = {};
};

struct StepOutcome {
  StepStats stats;
  GradNorm norm;
  int64_t clipped_heads = 0;                      ///< by QK-clip, of the whole model
  double passes_seconds = 0, update_seconds = 0;  ///< forward and backward; norm, clip and all updates
};

/// How steps of a phase run, without a memory policy.
StepOptions step_options(const Recipe& recipe, const Model& model, const PhaseConfig& phase,
                         int64_t micro_batch);

/// Fills a model of the recipe with the weights that its run begins with: those of run.start_from without its
/// optimizer, else initial ones from the seed. Returns the checkpoint that they come from; empty: none.
/// `tokenizer`: content hash of the recipe's tokenizer, "" where there is none. Error where the stored model
/// is another one.
std::string load_first_weights(FileSystem& fs, const Recipe& recipe, const std::string& tokenizer,
                               Model& model);

class TrainEngine {
 public:
  /// One of the ranks of a run. The recipe names a vocabulary and is RunRanks::fitted(); `ranks` must outlive
  /// this. Called by all ranks. Weights are zero until load_start() or a restore. With Backing::nothing it
  /// can be planned, not run.
  TrainEngine(const Recipe& recipe, const RunRanks& ranks, Backing backing = Backing::memory);
  /// One process alone; the recipe has no [parallel] but its defaults.
  explicit TrainEngine(const Recipe& recipe, Backing backing = Backing::memory);
  TrainEngine(const TrainEngine&) = delete;
  TrainEngine& operator=(const TrainEngine&) = delete;

  const Recipe& recipe() const { return recipe_; }
  const RunRanks& ranks() const { return *ranks_; }
  const PipelineGroups& pipeline() const { return *pipeline_; }
  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  const GradientBuffer& gradients() const { return *gradients_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  bool clips_attention() const { return !qk_layers_.empty(); }
  /// This rank's position, as StepRunner and RankLogits take it.
  StepRanks step_ranks() const;
  /// What this rank saves of parameter i, and of all of them.
  ElementRange owned(int parameter) const { return ownership_->owned(parameter); }
  int64_t owned_elements() const;

  /// Which activations are recomputed or offloaded from now on; at first those that the recipe names.
  /// `folder`: where an offload store has its file, unless memory.offload_folder says it.
  void set_memory_policy(const std::vector<std::string>& recompute, const std::vector<std::string>& offload,
                         const std::string& folder);
  /// load_first_weights() of this model.
  void load_start(FileSystem& fs, const std::string& tokenizer);
  /// Rotation, window and the optimizer's settings of the step that follows `steps` steps of a phase.
  void enter(size_t phase, int64_t steps);
  /// The optimizer's state is as before the first step.
  void reset_optimizer() { optimizer_->reset(); }
  /// How steps of a phase run.
  StepOptions options(size_t phase, int64_t micro_batch) const;

  /// A whole step. Every rank has the whole batch. On a device the host waits once, after the update has been
  /// asked for (optim/device_update.h), and the judge comes then.
  StepOutcome step(const data::Batch& batch, const StepCall& call);
  /// Its first half alone: gradients are complete sums over the valid tokens of all ranks.
  StepStats forward_backward(const data::Batch& batch, const StepOptions& options);
  /// See StepRunner::digest_of_share().
  uint64_t digest_of_share(const data::Batch& batch, const StepOptions& options, int64_t further) {
    const OnDevice weights(*this);
    return runner_->digest_of_share(batch, options, further);
  }
  /// Names the first gradient that is not finite.
  std::string describe_bad_norm(const GradNorm& norm) const;
  /// "'head.weight' (nan at element 3)": the first weight of this rank that the last update left with a value
  /// that is not finite; empty: all are finite. Costs nothing where they are: the optimizer has their norms.
  std::string describe_bad_weight() const;
  /// Forward only; see StepRunner::evaluate().
  std::pair<double, int64_t> evaluate(const data::Batch& batch) {
    const OnDevice weights(*this);
    return runner_->evaluate(batch);
  }
  /// Forward only; see StepRunner::logprobs().
  std::vector<float> logprobs(const data::Batch& batch, int64_t micro_batch) {
    const OnDevice weights(*this);
    return runner_->logprobs(batch, micro_batch);
  }
  /// Blocks that the passes took from outside their planned memory so far.
  int64_t plan_misses() const { return runner_->plan_misses(); }
  /// See StepRunner::graph_counts().
  MicroGraphCounts graph_counts() const { return runner_->graph_counts(); }
  /// Bytes that the first stage of a pipeline sends on for a micro-batch of a phase; 0: there is one stage.
  int64_t boundary_bytes(size_t phase) const;
  /// Whether updates move selection biases of routers, unless a phase freezes them.
  bool balances_routers() const { return !balance_->layers().empty(); }
  /// Where weights, gradients and the optimizer's state are in the steps of such a run; cpu: on the host.
  DeviceKind device_of_weights() const;
  /// Frees the memory of the step until the next one; see StepRunner::release_memory().
  void release_memory() { runner_->release_memory(); }

  /// State of the optimizer: one value for each element of a parameter that this rank updates.
  struct ParameterState {
    std::string name;  ///< in checkpoints: "optimizer/<parameter>.<slot>"
    int parameter = 0;
    Tensor values;      ///< flat
    int64_t begin = 0;  ///< element of the parameter that the first value belongs to
  };
  void visit_parameter_state(const std::function<void(const ParameterState&)>& fn);
  /// State that all ranks hold alike, by its name in checkpoints.
  void visit_common_state(const std::function<void(const std::string& name, const Tensor& tensor)>& fn);

 private:
  TrainEngine(const Recipe& recipe, std::unique_ptr<RunRanks> alone, const RunRanks* ranks, Backing backing);
  /// While this lives, tensors of weights and gradients are the device's, where they may move to one.
  /// Elsewhere whoever asks for them has them on the host.
  class OnDevice {
   public:
    explicit OnDevice(const TrainEngine& engine) : engine_(engine) { use(true); }
    ~OnDevice() { use(false); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

   private:
    void use(bool on) {
      engine_.model_->use_device(on);
      engine_.gradients_->use_device(on);
    }
    const TrainEngine& engine_;
  };
  void build_model(Backing backing);
  void build_optimizer(Backing backing);
  void build_balance();
  void build_device_update();
  /// What changes beside the parameters of `there`, with addresses of the device.
  AfterUpdate after_update(std::span<const ParamView> there) const;
  /// step() with weights on a device.
  StepOutcome step_on_device(const data::Batch& batch, const StepCall& call);
  /// What follows its passes.
  void end_alone(const data::Batch& batch, const StepCall& call, StartedStep& started,
                 std::optional<OnDevice>& weights, StepOutcome& o);
  void end_with_ranks(const StepCall& call, StartedStep& started, std::optional<OnDevice>& weights,
                      StepOutcome& o);
  void end_back_on_host(const StepCall& call, StartedStep& started, std::optional<OnDevice>& weights,
                        StepOutcome& o);
  void end_on_host(const StepCall& call, StepOutcome& o);
  /// While OnDevice lives: moves what came back to the host.
  void move_to_device() const;
  /// Norm of the whole model's gradient, the same on all ranks, with sums by index of the parameter table,
  /// from the sums of squares of this rank's gradients in the optimizer's order.
  GradNorm norm_over_ranks(const std::vector<double>& sum_squares, double scale) const;
  /// Everything that changes from step to step. Returns how many heads QK-clip clipped.
  int64_t update(const StepStats& stats, const StepArgs& args);
  /// Weights and gradients to the host, for messages, which read them by the optimizer's addresses.
  void bring_back() const;
  void update_routers(const StepStats& stats);
  /// Whether steps of this phase move selection biases.
  bool moves_biases() const;
  /// Over the ranks that hold other parts of the model: pipeline stages, tensor ranks.
  int64_t sum_over_model(int64_t value) const;

  const Recipe recipe_;
  std::optional<size_t> phase_;  ///< entered
  std::unique_ptr<RunRanks> alone_;
  const RunRanks* ranks_;
  DeviceKind weights_device_;  ///< where weights may move; cpu: they stay
  std::unique_ptr<PipelineGroups> pipeline_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Shards> shards_;            ///< where data ranks shard anything
  std::unique_ptr<WeightGatherer> gatherer_;  ///< where they shard weights
  std::unique_ptr<Ownership> ownership_;
  std::unique_ptr<GradientBuffer> gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<BalanceController> balance_;
  std::vector<QkClipLayer> qk_layers_;  ///< empty: no clip
  /// Where weights may move to a device.
  std::unique_ptr<DeviceUpdate> device_update_;
  std::unique_ptr<NamedPolicy> policy_;
  std::unique_ptr<OffloadStore> store_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace ingot
