// The order of training: the tokens of sample n of a run, for any n, at any time, on any rank.
//
// Everything is a pure function of (seed, sample number, phase): the mixture gives the source and its running
// count, a keyed permutation of the source's sequences gives the window. So there is no index to build,
// nothing grows with the number of steps, skipping is free, and ranks or micro-batches are ranges of sample
// numbers.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/mixture.h"
#include "data/packing.h"
#include "data/trim.h"

namespace ingot::data {

enum class SampleMode {
  stream,  ///< windows of S tokens cut anywhere from the source's token stream, each once per epoch, shuffled
  /// Rows of whole documents (pack_best_fit), each once per epoch, shuffled; takes 8 bytes per document.
  best_fit,
  random  ///< windows at uniformly drawn offsets, with replacement, as nanoGPT draws them
};
constexpr auto enum_names(SampleMode) {
  return names_in_order<SampleMode>("stream", "best_fit", "random");
}

struct SamplerSource {
  std::shared_ptr<const TokenSplit> split;  ///< its dataset's name is the source's name
  double weight = 1;
  bool windows = false;  ///< best_fit: its rows are windows as in mode stream, beside others' whole documents
};

struct SamplerOptions {
  uint64_t seed = 0;
  int64_t sequence_length = 0;
  SampleMode mode = SampleMode::stream;
  RowOptions rows;
  bool drop_too_long = false;  ///< best_fit: leave out documents longer than a row, instead of refusing them
  std::optional<ReasoningMarks>
      marks;          ///< best_fit: trim documents longer than a row, or leave them out (trim.h)
  int64_t group = 1;  ///< best_fit: documents i group, ..., (i + 1) group - 1 stand in one row
};

/// Progress of one source. It stays in the state while the source has no weight, so a set that comes back in
/// a later phase continues where it stopped.
struct SourceState {
  std::string name;
  std::string content_hash;
  double weight = 0;        ///< in the current phase
  int64_t phase_begin = 0;  ///< samples consumed before the current phase
  int64_t consumed = 0;     ///< samples consumed
  bool operator==(const SourceState&) const = default;
};

/// The state of the data order in a checkpoint. Independent of ranks and micro-batches.
struct SamplerState {
  uint64_t seed = 0;
  int64_t sequence_length = 0;
  SampleMode mode = SampleMode::stream;
  int64_t samples = 0;      ///< consumed since the start of the run
  int64_t phase_begin = 0;  ///< of them, before the current phase
  std::vector<SourceState> sources;
  bool operator==(const SamplerState&) const = default;
};
std::string to_json(const SamplerState& state);
/// Error on anything but a complete, consistent state; `origin` names the text.
SamplerState parse_sampler_state(std::string_view text, const std::string& origin);

/// The state with which a new phase (other weights, other sources, another sequence length) begins. Where the
/// length changes, each source's count is converted by tokens and rounded up: windows of another length
/// cannot continue an epoch exactly.
SamplerState next_phase(const SamplerState& state, int64_t sequence_length);
/// The same where the new phase may draw in another mode; counts are rows of about as many tokens.
SamplerState next_phase(const SamplerState& state, int64_t sequence_length, SampleMode mode);

class Sampler {
 public:
  /// Starts a run, or continues from a state. Sources are ordered by name. Errors: no source or two of one
  /// name; a source with weight but fewer tokens than one sequence; a state of another seed, mode, length or
  /// content, or of other weights in the middle of a phase.
  Sampler(std::vector<SamplerSource> sources, const SamplerOptions& options,
          const SamplerState* from = nullptr);

  /// Rows for samples [first, first + rows), first >= phase_begin(). Pure; thread-safe.
  Batch batch(int64_t first, int64_t rows) const;
  /// The state after `samples` samples of the run: what to save when that many were consumed.
  SamplerState state_at(int64_t samples) const;

  int64_t phase_begin() const { return phase_begin_; }
  const SamplerOptions& options() const { return options_; }
  size_t sources() const { return sources_.size(); }
  const TokenSplit& source(size_t s) const { return *sources_[s].split; }
  /// Samples in one epoch of the source (mode random: tokens / sequence length).
  int64_t epoch_samples(size_t s) const { return sources_[s].sequences; }
  /// Documents that best_fit left out as too long.
  int64_t dropped_documents(size_t s) const { return sources_[s].packed.dropped; }
  /// What trimming did to a source, and how full its rows are (windows: all).
  struct PackedSource {
    int64_t documents = 0, shortened = 0, earlier_removed = 0, dropped = 0;
    int64_t reasoning = 0, reasoning_left = 0;  ///< tokens of the documents that were too long
    double fill = 0;                            ///< share of positions that hold tokens
  };
  /// Mode best_fit.
  PackedSource packed(size_t s) const;

 private:
  struct Source {
    std::shared_ptr<const TokenSplit> split;
    double weight = 0;
    bool windows = false;
    uint64_t key = 0;  // hash of the name
    int64_t sequences = 0;
    int64_t phase_begin = 0;
    PackedRows packed;                   // mode best_fit
    std::map<int64_t, Trimmed> trimmed;  // documents that are too long
    int64_t packed_tokens = 0;
  };
  void prepare(Source& source) const;
  /// Whether rows of the source are whole documents.
  bool packs(const Source& source) const { return options_.mode == SampleMode::best_fit && !source.windows; }
  void restore(const SamplerState& from);
  void append_row(size_t s, RowOrigin origin, Batch& batch) const;

  SamplerOptions options_;
  std::vector<Source> sources_;
  std::unique_ptr<const Mixture> mixture_;
  int64_t phase_begin_ = 0;
  std::vector<SourceState> absent_;  // sources of earlier phases, kept for later ones
};

}  // namespace ingot::data
