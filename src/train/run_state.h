// What a run saves and restores. With the recipe and the data it decides every weight that is to come: a run
// that is killed and resumed ends with the bits of an undisturbed one.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "report/metrics.h"
#include "train/batch_source.h"
#include "train/engine.h"
#include "train/health.h"
#include "train/phase_sampler.h"

namespace ingot {

/// Whether a loss of the phase `b` says something beside those of `a`: the same mixture and objective.
/// Other sequence lengths and rotations are compared.
bool has_comparable_losses(const PhaseConfig& a, const PhaseConfig& b);

class RunState {
 public:
  /// All must outlive this. Before begin() or restore() there is no sampler.
  RunState(FileSystem& fs, TrainEngine& engine, const PreparedData& data);

  /// The start of a run: first weights, first phase; of a branch: where its trunk stands.
  void begin();
  /// Where the checkpoint was saved. Error where something is missing or damaged, or where the recipe has no
  /// such phase.
  void restore(const CheckpointReader& reader);
  /// After restore(): leaves out `batches` batches of data here, and records the return to this step.
  void rewind(int64_t batches);
  /// All that this rank saves. The pieces point into the engine's memory. `protection`: see SaveRequest.
  SaveRequest save_request(const std::string& protection);

  int64_t step() const { return step_; }      ///< steps done
  int64_t tokens() const { return tokens_; }  ///< consumed by them
  const PhaseSampler& sampler() const { return *sampler_; }
  /// Of the present phase; made where it is first asked for.
  BatchSource& source();
  const PhaseConfig& phase() const { return sampler_->config(); }
  LossWatch& watch() { return watch_; }
  /// The metrics of the last step, where an interrupt ended the validation or the tasks that are due after
  /// it. A run that is resumed does them first. Part of a checkpoint.
  std::optional<MetricRow>& unmeasured() { return unmeasured_; }
  /// Learning rate of the next step.
  double learning_rate() const;
  /// The window of all steps from now on, whatever the recipe says. For profiles.
  void hold_window(int64_t tokens);
  /// Enters the next phase where all steps of this one are done; false where it continues.
  bool enter_next_phase();
  /// Takes the batch size that is due; false where none is.
  bool change_batch();
  /// A step on `batch` is done.
  void count_step(const data::Batch& batch, double loss);

 private:
  void branch();
  /// Rotation and window of the next step.
  void set_position();
  FileSystem& fs_;
  TrainEngine& engine_;
  const PreparedData& data_;
  LossWatch watch_;
  std::optional<PhaseSampler> sampler_;
  std::string saved_source_, saved_where_;  ///< state of the source that is not made yet, and its checkpoint
  std::unique_ptr<BatchSource> source_;     ///< of this phase and batch size; reads sampler_
  int64_t step_ = 0, tokens_ = 0;
  std::vector<Rewound> rewound_;
  std::optional<MetricRow> unmeasured_;
  std::optional<int64_t> held_window_;
};

}  // namespace ingot
