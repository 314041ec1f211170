// Kinds of phases: what a phase trains on and what it minimises. "text" reads windows or documents of the
// mixture, "chat" conversations packed whole; other kinds register themselves from a folder above this one,
// as objectives do, and a recipe names them as `kind`.
//
// One loop serves all (trainer.h): source -> batch -> passes -> update -> records. A kind brings
//   a source       the next batch, given the step and the model as it is (batch_source.h); or none, where the
//                  sampler's batches are what it trains on
//   an objective   a pure function of the head's statistics and the batch's columns (objective.h)
//   its checks     what it asks of the recipe; its settings are a sub-table of the phase (post_recipe.h)
//
// Rows. A batch has rows of `sequence` positions, the token budget of a forward pass. A row holds whole
// sequences, each a span of its own, so attention and positions never cross them and one memory plan serves
// every batch (data/sequence_rows.h makes such rows). Sequences that an objective needs together, such as a
// pair, stand in one row. A step has as many rows as its source returns: a multiple of micro-batch x data
// ranks. Every rank gets the same whole batch.
//
// Divisor. Losses are sums. The optimizer divides once, by Batch::loss_divisor(), which is known before the
// forward pass: the valid targets, or a number of sequences, pairs or tokens that the source chooses.
//
// Exactness. A token's log-probability depends on its sequence and the weights only, bit for bit, whatever
// row it stands in. So what an engine on the same weights recorded (TokenColumns::recorded) is what the
// forward pass computes; StepStats::unequal counts where it is not. Where the cotangents follow from that
// alone, the source gives them (TokenColumns::cotangent) and the head keeps no logits
// (Objective::known_cotangent).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/objective.h"
#include "train/recipe.h"

namespace ingot {

class BatchSource;
struct SourceContext;
class Model;

/// How the sampler fills the rows of a phase.
struct KindSampling {
  data::SampleMode mode = data::SampleMode::stream;
  data::RowOptions rows;
  bool drop_too_long = false;
  int64_t group = 1;   ///< best_fit: documents that follow each other and stand in one row; 2 for pairs
  bool trims = false;  ///< reasoning that does not fit a row is cut (data/trim.h)
};

/// Rows of a step that a kind plans itself.
struct PlannedRows {
  int64_t rows = 0;
  bool longest = false;  ///< there are as many only where every reply has its full length
};

struct SourceCost {
  int64_t bytes = 0;  ///< at most, beside model, optimizer and activations
  double flops = 0;   ///< for the batch of a step, on average
};

/// What is known of a phase's work when a run is planned.
struct PhaseWork {
  double training_flops = 0;  ///< of all its steps
  double source_flops = 0;    ///< of what its source computes for them
  int64_t moe_layers = 0;
};
/// What the plan says of it.
struct PhaseWords {
  std::string consumes;            ///< of a step: "128 prompts x 16 replies"
  std::vector<std::string> lines;  ///< more of it
};

struct PhaseKind {
  std::string name;
  /// Adds what is wrong with phase `phase` of the recipe, with fields relative to the recipe. Called once all
  /// of the recipe is read.
  std::function<void(const Recipe& recipe, size_t phase, ConfigErrors& errors)> validate;
  /// What its steps minimise.
  std::function<std::shared_ptr<const Objective>(const PhaseConfig& phase)> objective;
  /// How the sampler fills rows. Absent: the kind reads no prepared source, and its source makes all batches.
  std::function<KindSampling(const Recipe& recipe, const PhaseConfig& phase)> sampling = {};
  /// Which prepared sources a phase mixes if it names no weights. Absent: all.
  std::function<bool(const SourceConfig& source)> reads = {};
  /// A phase may name sources of text beside those it reads: windows of the text stand in rows of their own,
  /// so that what was learned before is not forgotten.
  bool replays_text = false;
  /// Makes the source. Absent: SampledSource.
  std::function<std::unique_ptr<BatchSource>(const SourceContext& context)> source = {};
  /// Rows of a step as they are planned. Absent: `batch` of the phase, which then has to be the number of
  /// rows exactly. A kind that has this gets single rows as micro-batches.
  std::function<PlannedRows(const PhaseConfig& phase)> rows = {};
  /// What its source takes beside the passes of steps. Absent: nothing to speak of. The model may have no
  /// memory.
  std::function<SourceCost(const Model& model, const PhaseConfig& phase)> source_cost = {};
  /// What a plan says of its steps in place of sequences and tokens.
  std::function<PhaseWords(const Recipe& recipe, size_t phase, const PhaseWork& work)> describe = {};
  /// The loss watch (health.h) judges the mean -log-probability, which ought to fall.
  bool watches_loss = true;
};

/// Call before any recipe is read; not thread-safe. Error for a name that is taken. "text" and "chat" exist
/// from the start.
void register_phase_kind(PhaseKind kind);
/// nullptr where there is none of that name.
const PhaseKind* find_phase_kind(const std::string& name);
/// The kind of a phase of a recipe that was validated.
const PhaseKind& kind_of(const PhaseConfig& phase);
/// "chat, preference, text".
std::string phase_kind_names();

/// For validate() of kinds with a sampling: adds what is wrong with the sources that a phase mixes.
void require_sources(const Recipe& recipe, size_t phase, ConfigErrors& errors);

/// Rows per forward pass at a batch size of the phase.
int64_t micro_rows(const PhaseConfig& phase, int64_t level, int64_t data_ranks);
/// Rows of a step as they are planned: a multiple of micro_rows x data ranks.
int64_t planned_rows(const PhaseConfig& phase, int64_t level, int64_t data_ranks);
/// Whether steps are planned with replies of full length, and so take that long at most.
bool plans_longest(const PhaseConfig& phase);

}  // namespace ingot
