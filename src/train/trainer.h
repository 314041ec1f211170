// A training run: from a recipe to a run folder. The loop is phases of steps; every step is data -> forward and backward
// (train/step) -> clip -> optimizer -> router biases -> metrics; around it validation, samples, checkpoints. Everything
// that decides the weights is saved, so a killed run that is resumed ends with the bits of an undisturbed one.
//
// Several ranks make one run: each constructs a Trainer of the same recipe and runs it. Every rank reads the whole batch
// and trains on its share, all take the same decisions from numbers that they share, and rank 0 owns the folder, the
// terminal and the records. All ranks see one file system.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "base/folder_lock.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "comm/world.h"
#include "data/loader.h"
#include "data/rows.h"
#include "infer/generator.h"
#include "optim/balance.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "parallel/ownership.h"
#include "parallel/pipeline_groups.h"
#include "parallel/weight_gatherer.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "report/tensorboard.h"
#include "train/health.h"
#include "train/memory_policy.h"
#include "train/phase_sampler.h"
#include "train/preflight.h"

namespace ingot {

enum class StartMode {
  resume_or_start,  ///< goes on from the newest checkpoint, else starts
  fresh,            ///< refuses a folder that holds a run
};

struct TrainResult {
  bool finished = false;  ///< false: interrupted (Ctrl-C), saved and ready to resume
  int64_t step = 0;
  double seconds = 0;
  std::map<std::string, double> validation;  ///< loss by source, from the last complete validation
  std::string last_sample;
};

/// What a run does: the parts of a step, then what may follow one.
enum class RunPhase {
  data,       ///< waits for the step's batch
  passes,     ///< forward and backward; TapeObserver::tensor() tells every op
  optimizer,  ///< gradient norm, and what follows from it
  update,     ///< the optimizer moves the weights; router biases
  records,    ///< validation, metrics, samples
  save,       ///< copies a checkpoint; a thread of the writer writes it meanwhile
};

/// Watches a run: where it is, and every tensor of its passes. Called from the run's own thread.
class RunObserver : public TapeObserver {
 public:
  virtual void enters(RunPhase phase) = 0;
};

class Trainer {
 public:
  /// Locks the run folder, prepares data, builds the model, restores the newest checkpoint if there is one, prints the
  /// preflight. Throws Error for anything that cannot work, before any step. `world`: the ranks of the run, which must
  /// outlive it; nullptr: this one alone.
  Trainer(FileSystem& fs, Recipe recipe, StartMode start, World* world = nullptr);
  ~Trainer();

  const Preflight& plan() const { return plan_; }
  bool leads() const { return groups_->leads(); }
  /// Runs to the end, or until interrupt() (then saves). A run that is finished already stays as it is, every file of it.
  /// Throws Error with a diagnosis where the loss is not finite or diverges; the folder then holds the last good
  /// checkpoint. A checkpoint that cannot be written is tried again, then reported, and the run goes on to the next; the
  /// last one must succeed.
  TrainResult run();
  /// Makes the next steps, at most to the end of the phase or of its batch size, and nothing else: no validation, samples,
  /// records or checkpoints. For profiles.
  void run_steps(int64_t steps);
  /// Asks the loop to save and return after the current step; safe from a signal handler.
  static void interrupt();
  /// Tells `observer` (kept by the caller; nullptr: nobody) what run() does.
  void observe(RunObserver* observer) { observer_ = observer; }
  int64_t step() const { return step_; }
  Model& model() { return *model_; }

 private:
  void join(World* world);
  void open_folder(StartMode start);
  /// The parameters that this rank holds, who answers for which, and their gradients.
  void build_model();
  void build_optimizer();
  void build_balance();
  std::optional<CheckpointReader> newest_checkpoint() const;
  /// Norm of the whole model's gradient, the same on all ranks, with sums by index of the parameter table.
  GradNorm norm_over_ranks(double scale) const;
  std::string describe_bad_norm(const GradNorm& norm) const;
  /// Over the ranks that hold other parts of the model: pipeline stages, tensor ranks.
  int64_t sum_over_model(int64_t value) const;
  /// False if any rank wants to stop. Also makes a save that all ranks have written a checkpoint.
  bool agree_to_go_on(bool stop);
  void start_weights();
  void restore(const CheckpointReader& reader);
  void require_same_run(const CheckpointReader& reader) const;
  void require_no_checkpoints(const std::string& folder) const;
  void require_prompts() const;
  void begin_phase();
  /// The window of the next step.
  void set_window();
  void open_outputs();
  void write_record();
  /// The optimizer and what moves weights beside it. Returns how many heads QK-clip clipped.
  int64_t update_weights(const StepStats& stats, const StepArgs& args);
  MetricRow train_step(const data::Batch& batch, double wait_seconds);
  void add_router_metrics(MetricRow& row, const StepStats& stats);
  void add_update_metrics(MetricRow& row) const;
  void judge(const StepStats& stats, const data::Batch& batch, const GradNorm& norm);
  [[noreturn]] void diagnose(const data::Batch& batch, const std::string& what);
  void validate(MetricRow& row, bool complete);
  void sample();
  /// Continues a prompt: with a cache, or by the ranks that hold the model in parts.
  std::vector<int32_t> sample_alone(std::span<const int32_t> prompt, const GenerateOptions& options) const;
  std::vector<int32_t> sample_together(std::span<const int32_t> prompt, const GenerateOptions& options) const;
  SaveRequest save_request(const std::string& protection);
  /// Calls fn(name, parameter, dtype, data, elements) for the optimizer's state of each parameter: of those elements that
  /// this rank moves, which lie at `data`.
  void for_each_parameter_state(
      const std::function<void(const std::string&, int, DType, void*, ElementRange)>& fn);
  int64_t owned_elements() const;
  /// State that all ranks hold alike.
  void for_each_common_state(const std::function<void(const std::string&, const Tensor&)>& fn);
  void save(const std::string& protection);
  void try_to_save(const std::string& protection);
  void finish_save();
  /// Makes the save that all ranks have written a checkpoint.
  void try_commit();
  void log_line(const MetricRow& row) const;
  StepOptions step_options() const;
  StepRanks step_ranks() const;
  void enter(RunPhase phase) const {
    if (observer_ != nullptr) observer_->enters(phase);
  }
  const PhaseConfig& phase() const { return sampler_->config(); }
  const LevelPlan& level_plan() const {
    return plan_.phases[sampler_->phase()].levels[static_cast<size_t>(sampler_->level())];
  }

  FileSystem& fs_;
  Recipe recipe_;
  std::unique_ptr<World> alone_;  ///< where no world was given
  World* world_ = nullptr;
  std::unique_ptr<RankGroups> groups_;
  std::unique_ptr<PipelineGroups> pipe_;
  std::unique_ptr<FolderLock> lock_;
  std::optional<PreparedData> data_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Shards> shards_;            ///< where data ranks share anything out
  std::unique_ptr<WeightGatherer> gatherer_;  ///< where they share weights out
  std::unique_ptr<Ownership> ownership_;
  std::unique_ptr<GradientBuffer> gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<BalanceController> balance_;
  std::vector<QkClipLayer> qk_layers_;  ///< empty: no clip
  std::unique_ptr<NamedPolicy> policy_;
  std::unique_ptr<OffloadStore> tier_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<PhaseSampler> sampler_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<EventWriter> events_;
  RunObserver* observer_ = nullptr;
  LossWatch watch_;
  Preflight plan_;
  TapeProfile profile_;
  TrainResult result_;
  int64_t step_ = 0;
  int64_t tokens_ = 0;
  std::optional<double> save_seconds_;  ///< of a checkpoint that no row has told of yet
  double started_ = 0;
  int64_t started_step_ = 0;
};

}  // namespace ingot
