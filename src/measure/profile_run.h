// Runs training steps of a recipe or of a run with everything observed: what `ingot profile` does. Nothing is
// written into the run: steps are made in a folder of their own that is removed afterwards, from the run's
// newest weights.
#pragma once
#include "comm/world.h"
#include "measure/profile.h"

namespace ingot {

struct ProfileOptions {
  int64_t steps = 5, warm_up = 2;  ///< those of the warm-up are not recorded
  std::string phase;               ///< of the recipe; empty: the one in which the run is, or the first
  std::string
      scratch;  ///< folder for what steps write, seen by all ranks; empty: the system's for temporary files
};

/// A recipe of one phase with constant batch, window and learning rate that makes such steps. `path`: a
/// recipe, whose model is initial or that of run.start_from, or a run folder, whose model is its newest
/// checkpoint's and whose phase, batch and window are where it stands. `fields` override both. Reads only.
Recipe profile_recipe(FileSystem& fs, const std::string& path, const std::vector<std::string>& fields,
                      const ProfileOptions& options);

/// Records what run() and rehearse() of a Trainer do, step by step, while it lives and observes.
class StepRecorder final : public RunObserver {
 public:
  /// Times count from `origin` (monotonic_seconds()). The first `warm_up` steps are not kept.
  StepRecorder(double origin, int64_t warm_up);
  void enters(RunPhase phase) override;
  void ran(const OpRun& run) override;
  void tensor(const std::string&, const Tensor&) override {}
  bool wants_tensors() const override { return false; }
  /// Ends the last step.
  std::vector<StepSpan> take();

 private:
  void waited(double begin, double end);
  void end_phase(double now);
  const double origin_;
  int64_t warm_up_;
  std::vector<StepSpan> steps_;
  StepSpan step_;
  size_t unplaced_ = 0;  ///< waits from this index of step_.ops on have no segment yet
  bool inside_ = false;
  WaitListener listener_;
};

/// Called by all ranks of the world with the same recipe of profile_recipe(); all return the same report,
/// `of` not filled in.
ProfileReport profile_run(FileSystem& fs, const Recipe& recipe, const ProfileOptions& options, World& world);

}  // namespace ingot
