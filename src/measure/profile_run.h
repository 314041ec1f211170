// `ingot profile`: runs training steps of a recipe or a run and records them. Writes nothing into the run
// folder: the steps start from its newest checkpoint, in a temporary folder.
#pragma once
#include "comm/world.h"
#include "measure/profile.h"

namespace ingot {

struct ProfileOptions {
  int64_t steps = 5, warm_up = 2;  ///< warm-up steps are not recorded
  std::string phase;               ///< of the recipe; empty: the current phase of the run, or the first
  int64_t saves = 0;               ///< checkpoints beside further steps
  std::string scratch;             ///< folder visible to all ranks; empty: the system's temporary folder
};

/// The steps of a profile: a recipe of one phase, with constant batch, window and learning rate.
struct ProfiledSteps {
  Recipe recipe;
  /// Of attention; the model's may be another one, since it must be that of the stored weights.
  int64_t window = 0;
};

/// `path`: a recipe, of which the first steps are profiled, or a run folder, of which those after its newest
/// checkpoint are. `fields` override the recipe. Reads only.
ProfiledSteps profiled_steps(FileSystem& fs, const std::string& path, const std::vector<std::string>& fields,
                             const ProfileOptions& options);

/// Records the steps of the Trainer that it observes.
class StepRecorder final : public RunObserver {
 public:
  /// Times count from `origin` (monotonic_seconds()). The first `warm_up` steps are not kept.
  StepRecorder(double origin, int64_t warm_up);
  void enters(StepPart phase) override;
  void ran(const OpRun& run) override;
  void tensor(const std::string&, const Tensor&) override {}
  bool wants_tensors() const override { return false; }
  /// Ends the last step.
  std::vector<StepSpan> take();
  /// What the compute device did in the steps that were kept, whose ops were watched.
  const std::vector<DeviceCount>& device_work() const { return device_work_; }

 private:
  void waited(const WaitSpan& wait);
  void end_phase(double now);
  const double origin_;
  int64_t warm_up_;
  std::vector<StepSpan> steps_;
  StepSpan step_;
  std::vector<DeviceCount> device_work_ = counts_of({}), before_step_;
  double busy_ = 0;      ///< processor seconds when the step began
  size_t unplaced_ = 0;  ///< waits from this index of step_.ops on have no segment yet
  bool inside_ = false;
  WaitListener listener_;
};

/// Counts what the compute device does in steps whose ops nobody watches: those of a run.
class StepCounter final : public RunObserver {
 public:
  /// The first `warm_up` steps are not counted.
  explicit StepCounter(int64_t warm_up) : warm_up_(warm_up) {}
  void enters(StepPart part) override;
  bool wants_ops() const override { return false; }
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}
  /// Ends the last step.
  std::vector<DeviceCount> take();

 private:
  int64_t warm_up_;
  std::vector<DeviceCount> begin_;
};

/// Called by all ranks of the world with the same steps; all return the same report, `of` not filled in.
ProfileReport profile_run(FileSystem& fs, const ProfiledSteps& steps, const ProfileOptions& options,
                          World& world);

}  // namespace ingot
