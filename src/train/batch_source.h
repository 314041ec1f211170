// Where the batches of one phase come from. See phase_kind.h, which explains how a kind of phases is made.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "data/loader.h"
#include "report/metrics.h"
#include "train/engine.h"
#include "train/phase_sampler.h"

namespace ingot {

/// One thread uses it; all ranks make the same calls.
class BatchSource {
 public:
  BatchSource() = default;
  virtual ~BatchSource() = default;
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;
  /// What step `step` of the run (0-based) trains on. Steps come in order; after restore(), from the step at
  /// which the state was taken. May run the engine's model, whose weights are those that this step starts
  /// from.
  virtual data::Batch next(int64_t step) = 0;
  /// The step on that batch is done: its statistics, from before any weight changed, and the row of its
  /// metrics, which only the leading rank writes.
  virtual void observe(const StepOutcome&, MetricRow&) {}
  /// Adds what held-out rows of this kind say to the row: val/<source>/... `complete`: of all of them, not of
  /// evaluation.max_tokens. After next() of the phase's first step, in this run or before restore(). False,
  /// and the row as it was, where `stops`, asked between batches, says so on all ranks.
  virtual bool validate(MetricRow&, bool complete, const std::function<bool()>& stops) {
    static_cast<void>(complete), static_cast<void>(stops);
    return true;
  }
  /// Everything that later batches depend on beside recipe, data, step and weights; part of a checkpoint. A
  /// killed and resumed run must end with the bits of an undisturbed one.
  virtual std::string state() const { return {}; }
  /// Takes over what state() said. Error where it is damaged; `where` names the checkpoint.
  virtual void restore(const std::string& state, const std::string& where);
};

/// What a source may use. All of it outlives the source.
struct SourceContext {
  FileSystem& fs;
  TrainEngine& engine;  ///< model, recipe, ranks, forward passes; a source changes no weight
  const PreparedData& data;
  const PhaseSampler& sampler;  ///< the phase and its first step; its batches where the kind has a sampling
  const Recipe& recipe() const { return engine.recipe(); }
  const PhaseConfig& config() const { return sampler.config(); }
};

/// Batches of the sampler as they are, prepared ahead by a thread: kinds without a source of their own.
class SampledSource final : public BatchSource {
 public:
  /// The sampler keeps its phase and batch size while this exists.
  explicit SampledSource(const PhaseSampler& sampler) : sampler_(sampler) {}
  data::Batch next(int64_t step) override;

 private:
  const PhaseSampler& sampler_;
  std::unique_ptr<data::PrefetchLoader> loader_;
};

}  // namespace ingot
