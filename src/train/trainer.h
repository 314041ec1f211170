// A training run: from a recipe to a run folder. The loop is phases of steps; every step is data, then the
// step itself (engine.h), then its metrics (step_log.h); around it validation, samples and checkpoints
// (run_state.h).
//
// Several ranks make one run: each constructs a Trainer of the same recipe and runs it. Every rank reads the
// whole batch and trains on its share, all take the same decisions from numbers that they share, and rank 0
// owns the folder, the terminal and the records. All ranks see one file system.
#pragma once
#include <memory>
#include <optional>

#include "base/folder_lock.h"
#include "report/metrics.h"
#include "report/report.h"
#include "report/run_record.h"
#include "report/tensorboard.h"
#include "train/preflight.h"
#include "train/rank_log.h"
#include "train/run_accuracy.h"
#include "train/run_digests.h"
#include "train/run_metrics.h"
#include "train/run_samples.h"
#include "train/run_state.h"
#include "train/run_status.h"
#include "train/run_tasks.h"
#include "train/step_log.h"
#include "train/training_clock.h"

namespace ingot {

enum class StartMode {
  resume_or_start,  ///< resumes the newest checkpoint, else starts
  fresh,            ///< refuses a folder that holds a run
};

struct StartOptions {
  StartOptions(StartMode start_mode = StartMode::resume_or_start) : mode(start_mode) {}
  StartMode mode;
  DataCheck data = DataCheck::changed;
  bool accept_kernels = false;  ///< resumes with another kernel set than the run had: not bit for bit
};

/// A return to an earlier checkpoint of the run, for one that went wrong.
struct Rewind {
  std::optional<int64_t> from;  ///< step of the checkpoint; none: no return
  int64_t skip_batches = 0;     ///< batches of data left out there
  /// Folder of the run whose checkpoint it is; 0 in `from` is then the run's start. Empty: this run. For
  /// Trainer::replay() alone.
  std::string of_run = {};
};

struct TrainResult {
  bool finished = false;  ///< false: interrupted (Ctrl-C), saved and ready to resume
  int64_t step = 0;
  double seconds = 0;
  std::map<std::string, double> validation;  ///< loss by source, from the last complete validation
  std::vector<Sample> samples;               ///< those written last
};

class Trainer {
 public:
  /// Locks the run folder, prepares data, builds the engine, restores the newest checkpoint if there is one,
  /// makes the preflight. Throws Error for anything that cannot work, before any step. `world`: the ranks of
  /// the run, which must outlive it; nullptr: this one alone. With `rewind` the run continues from that
  /// checkpoint, which becomes the newest once run() begins: from then on it resumes without `rewind`.
  Trainer(FileSystem& fs, const Recipe& recipe, const StartOptions& start, World* world = nullptr,
          const Rewind& rewind = {});
  ~Trainer();

  const Preflight& plan() const { return plan_; }
  bool leads() const { return ranks_.leads(); }
  /// Runs to the end, or until interrupt() (then saves). A run that is finished already stays as it is, every
  /// file of it. Throws Error with a diagnosis where loss, gradient or weights are not finite, the loss
  /// diverges or the gradient stays 0, and with the command that goes back to before it. A checkpoint that
  /// cannot be written is reported, and the run continues to the next; three in a row end it, and the last
  /// one must succeed. Throws Error before the first step where the disk cannot hold the checkpoints, and
  /// after any where the folder is gone.
  TrainResult run();
  /// Makes the next steps, at most to the end of the phase or of its batch size, and nothing else: no
  /// validation, samples, records or checkpoints. For profiles.
  void run_steps(int64_t steps);
  /// Saves a checkpoint, writes it beside the next `steps` steps, and returns once it is there: the seconds
  /// that the steps waited for it, and its report. For profiles.
  std::pair<double, SaveReport> save_beside_steps(int64_t steps);
  /// Makes up to `steps` steps of the run of Rewind::of_run, across phases, and nothing else. Their digests
  /// go to digests.jsonl of this folder; `agrees`: whether those of copies are wanted of a step. Tells `made`
  /// of each step and ends where it says false.
  void replay(int64_t steps, const std::function<bool(int64_t step)>& agrees,
              const std::function<bool(const StepDigests&)>& made);
  /// What the digests of replay() depend on.
  const DigestStart& digest_start() const { return digests_->start(); }
  /// See RunState::hold_window().
  void hold_window(int64_t tokens) { state_->hold_window(tokens); }
  /// Asks the loop to save and return after the current step, and drops log lines whose reader stalls; safe
  /// from a signal handler.
  static void interrupt();
  /// Tells `observer` (kept by the caller; nullptr: nobody) what run() does.
  void observe(RunObserver* observer) { observer_ = observer; }
  /// What steps were predicted to take, by phase: run() records it beside what they take.
  void expect(std::vector<StepForecast> steps) { accuracy_.expect(std::move(steps)); }
  /// Tells `status` (kept by the caller) where run() is.
  void publish(RunStatus* status) { status_ = status; }
  /// Gives `metrics` (kept by the caller) the numbers of each line of the log, on the leading rank.
  void publish(RunMetrics* metrics) { page_ = metrics; }
  int64_t step() const { return state_->step(); }
  /// Whether nothing is left to do: every step is done, and measured.
  bool finished() const { return measured() >= recipe().total_steps(); }
  Model& model() { return engine_->model(); }
  /// Complete, with batches that fit the ranks.
  const Recipe& recipe() const { return engine_->recipe(); }
  TrainEngine& engine() { return *engine_; }

 private:
  void open_folder(const Recipe& recipe, StartMode start);
  /// Error where the ranks of this layout would miss or double a collective (train/rank_check.h).
  void check_layout(const Recipe& recipe) const;
  /// The newest checkpoint or that of `rewind`, or the start of the run.
  void restore(const Rewind& rewind, bool accept_kernels);
  std::optional<CheckpointReader> newest_checkpoint() const;
  CheckpointReader checkpoint_of(int64_t step, const std::string& run, bool with_rewound) const;
  void open_checkpoints();
  void open_outputs();
  /// Reads the training clock from the metrics up to this step.
  void resume_clock();
  /// Whether this row's validations reach the target of the phase that ends the run there.
  bool ends_at_target(MetricRow& row);
  /// The phase and the batch size of the next step.
  void begin_steps();
  /// Steps of one batch size. False where the run is to stop.
  bool run_batch_size();
  /// The next step, its batch included.
  MetricRow train_step();
  // trainer_replay.cpp:
  void begin_digests(const data::Batch& batch, StepCall& call);
  void check_digests(const data::Batch& batch, const StepCall& call);
  void judge(const StepStats& stats, const data::Batch& batch, const GradNorm& norm);
  [[noreturn]] void stop_diverged(double loss);
  void require_finite_weights(double lr);
  [[noreturn]] void diagnose(const data::Batch& batch, const std::string& what);
  static bool interrupted();
  /// The last step after which validation and tasks are done.
  int64_t measured() const { return step() - (state_->unmeasured() ? 1 : 0); }
  /// Whether any rank says so: the same on all. Collective.
  bool any_rank(bool says) const;
  struct Agreement {
    bool continues = true;  ///< no rank wants to stop
    bool logged = false;    ///< the leading rank has logged the step
  };
  /// Also makes a save that all ranks have written a checkpoint. Throws Error where the run folder is gone.
  Agreement agree_to_continue(bool stop, bool logged);
  bool folder_is_gone();
  // trainer_measure.cpp:
  /// What follows a step: validation, records, samples, a checkpoint. False where the run is to stop.
  /// `resumed`: the step was made before this start, and saved unmeasured.
  bool after_step(MetricRow& row, bool resumed = false);
  /// Whether this step is the last of the run, and of its phase.
  bool ends_run() const { return step() == recipe().total_steps(); }
  bool ends_phase() const { return step() == state_->sampler().end_step(); }
  /// Whether something that is done every `every` steps, and at the end, is done after this one.
  bool due(int64_t every) const;
  /// Whether this step is saved, interrupted or not.
  bool saves() const;
  /// Adds the validation and the tasks that are due to the row of the step. False where an interrupt ended
  /// them: the row is as it was, and part of the state that is saved.
  bool measure(MetricRow& row);
  bool validate_sources(MetricRow& row);
  bool run_tasks(MetricRow& row);
  void save_unmeasured(bool resumed);
  void write_samples();
  // trainer_record.cpp:
  /// Whether the row got a line of the log.
  bool log_row(const MetricRow& row);
  void publish_snapshot(std::optional<MetricRow> row);
  RunRecord::Start this_start() const;
  void write_record();
  /// What was predicted beside what was measured, in run.json and, if `says`, in the log. Collective.
  void record_predictions(bool says);
  // trainer_save.cpp:
  int64_t saves_to_come() const;
  void save(const std::string& protection);
  /// Waits for the save in progress and takes note of its end.
  void end_save();
  void count_failed_save(int64_t step, const Error& error);
  void finish_save();
  std::string way_back();
  std::string rewind_command(int64_t from_step) const;
  std::string end_of_phase() const;
  StepOptions step_options() const;
  void enter(StepPart part) const {
    if (status_ != nullptr) status_->enter(part);
    if (observer_ != nullptr) observer_->enters(part);
  }
  const PhaseConfig& phase() const { return state_->phase(); }
  const LevelPlan& level_plan() const {
    const PhaseSampler& sampler = state_->sampler();
    return plan_.phases[sampler.phase()].levels[static_cast<size_t>(sampler.level())];
  }

  FileSystem& fs_;
  const RunRanks ranks_;
  std::unique_ptr<FolderLock> lock_;
  std::optional<PreparedData> data_;
  std::unique_ptr<TrainEngine> engine_;
  std::unique_ptr<RunState> state_;
  std::unique_ptr<RunTasks> tasks_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<LiveReport> live_report_;
  std::unique_ptr<RunDigests> digests_;
  std::unique_ptr<RankLog> rank_log_;
  RunStatus* status_ = nullptr;
  RunMetrics* page_ = nullptr;
  RunObserver* observer_ = nullptr;
  Preflight plan_;
  std::string accepted_kernels_;  ///< the kernel set that the checkpoint was written with, if it is another
  TapeProfile profile_;
  TrainResult result_;
  struct Place {
    std::string path;
    int64_t step = 0;
  };
  std::optional<Place> newest_;  ///< the newest complete checkpoint
  bool rewound_ = false;         ///< and not saved yet
  int64_t saving_step_ = 0;      ///< of the last save that began
  int failed_saves_ = 0;         ///< in a row
  bool lock_warned_ = false;
  std::optional<double> save_seconds_;  ///< of a checkpoint that no row has recorded yet
  TrainingClock clock_;
  RunAccuracy accuracy_;
  double started_ = 0;
  std::vector<SamplePrompt> prompts_;
  std::optional<StepLog> log_;  // of this call of run()
};

}  // namespace ingot
