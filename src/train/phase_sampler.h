// The data of a run: the sampler of one phase, with that phase's mixture, and its batches by step of the run.
// Training and dumps both read from here, so they see the same rows.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "data/sampler.h"
#include "train/prepare.h"
#include "train/recipe.h"

namespace ingot {

/// A return to an earlier checkpoint, after which batches of data were left out.
struct Rewound {
  int64_t to_step = 0, skipped_batches = 0;
};

/// The state "trainer" of a checkpoint.
struct SavedRun {
  int64_t step = 0, tokens = 0;
  size_t phase = 0;
  std::string tokenizer, kernels;  ///< content hash and fingerprint
  BatchProgress progress;          ///< without its samples, which the sampler's state has
  std::vector<Rewound> rewound;    ///< on the way to this checkpoint, in order
  std::string json() const;
  /// Error where the state is missing or damaged.
  static SavedRun of(const CheckpointReader& reader);
};

/// The prepared sources with their shares in a phase.
std::vector<data::SamplerSource> phase_sources(const Recipe& recipe, const PreparedData& data,
                                               const PhaseConfig& phase);
/// How the rows of a phase are filled, of any sources. The kind must sample.
data::SamplerOptions sampler_options(const Recipe& recipe, const PreparedData& data, size_t phase);
/// How the rows of a phase are drawn where it begins, or continues from `state`. The kind must sample.
data::Sampler sampler_of_phase(const Recipe& recipe, const PreparedData& data, size_t phase,
                               const data::SamplerState* state = nullptr);

/// What packing makes of the sources of a phase whose rows hold whole documents: a line for each, and
/// warnings where documents are left out or the phase makes few steps. Empty for other phases.
struct RowPlan {
  std::vector<std::string> lines, warnings;
};
RowPlan plan_rows(const Recipe& recipe, const PreparedData& data, size_t phase);

class PhaseSampler {
 public:
  /// The first phase of a new run. The recipe and the data must outlive this object.
  PhaseSampler(const Recipe& recipe, const PreparedData& data);
  /// The phase in which the checkpoint was saved; at a phase's end that is the one that ended. Error where
  /// the recipe has no such phase, or the order of the data would not continue (data/sampler.h).
  PhaseSampler(const Recipe& recipe, const PreparedData& data, const CheckpointReader& reader);
  /// Where the checkpoint of another run stands, in the phase of this recipe that has its last step. The
  /// order of the data continues inside the phase if the trunk was in the same one: begun at the same step,
  /// with the same sequence length and mixture. Else a part of the phase begins here, as a phase of its own
  /// would.
  static PhaseSampler branch(const Recipe& recipe, const PreparedData& data, const CheckpointReader& trunk);
  /// Enters the next phase; all steps of this one are done.
  void advance();

  size_t phase() const { return phase_; }
  const PhaseConfig& config() const { return recipe_->phases[phase_]; }
  int64_t first_step() const { return first_step_; }  ///< of the phase, counted from the start of the run
  int64_t end_step() const { return first_step_ + config().steps; }

  /// What step `step` (0-based, of this phase) trains on, as long as the batch size is the one of now: from
  /// the first step done with it until change_batch(). Pure; thread-safe.
  /// Of a kind that samples.
  data::Batch batch(int64_t step) const;
  /// Of such a kind: how rows are drawn.
  const data::Sampler& rows() const { return *sampler_; }
  /// Position in the phase's list of batch sizes: what batch() uses, and the plan's level.
  int64_t level() const { return level_; }
  int64_t micro_batch() const;

  /// Counts a step of this phase that was done with batch(), and its loss.
  void count_step(double loss) { config().after_step(progress_, loss); }
  /// True where the steps counted so far ask for another batch size.
  bool change_due() const { return progress_.level != level_; }
  /// Leaves out the next `batches` batches of the present size: they count as consumed. No batch() may run in
  /// another thread meanwhile.
  void skip(int64_t step, int64_t batches);
  /// Takes that size from step `step` on. No batch() may run in another thread meanwhile.
  void change_batch(int64_t step);

  /// What to save when the steps counted so far are done.
  data::SamplerState state() const;
  const BatchProgress& progress() const { return progress_; }

 private:
  struct Unset {};
  PhaseSampler(Unset, const Recipe& recipe, const PreparedData& data) : recipe_(&recipe), data_(&data) {}
  /// Continues inside phase `phase`, at `state`.
  void resume(size_t phase, const data::SamplerState& state, const SavedRun& saved, const std::string& where);
  void enter(size_t phase, const data::SamplerState* state);
  data::SamplerState following(const data::SamplerState& state, size_t phase) const;
  const Recipe* recipe_;
  const PreparedData* data_;
  size_t phase_ = 0;
  int64_t first_step_ = 0;
  std::optional<data::Sampler> sampler_;  ///< of kinds that sample
  data::SamplerState carried_;            ///< through phases of other kinds, for those after them
  BatchProgress progress_;
  // What batch() reads; changed by enter() and change_batch() only.
  int64_t level_ = 0, level_step_ = 0, level_samples_ = 0;
};

}  // namespace ingot
