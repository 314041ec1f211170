// Batches of pairs: the sampler's rows, with the columns that losses on preferences read.
//
// The reference is the model with which the phase begins. Its log-probabilities are computed once, by the
// same forward pass, of every pair that the phase will see, and kept in the run's folder
// (reference/phase-<n>.safetensors): the first step's policy equals it bit for bit, and a resumed run reads
// them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/batch_source.h"

namespace ingot {

/// What the reference says of the sequences of a phase.
struct ReferenceLogprobs {
  /// By (source, document): of each of its tokens, 0 of those that are no target.
  std::map<std::pair<int32_t, int64_t>, std::vector<float>> documents;
  /// KTO: by step of the phase, the sum over the mismatched sequences of that step's batch.
  std::vector<double> mismatched;
};

class HeldOutPairs;

class PreferenceSource final : public BatchSource {
 public:
  explicit PreferenceSource(const SourceContext& context);
  ~PreferenceSource() override;
  data::Batch next(int64_t step) override;
  void observe(const StepOutcome& outcome, MetricRow& row) override;
  bool validate(MetricRow& row, bool complete, const std::function<bool()>& stops) override;
  std::string state() const override;
  void restore(const std::string& state, const std::string& where) override;

 private:
  std::string path() const;
  void obtain_reference(int64_t step);
  void compute_reference(int64_t step);
  void keep_reference();
  void read_reference();
  /// KTO's z: the mean log-ratio of prompts with another prompt's answer, at least 0.
  double baseline(const data::Batch& batch, int64_t step);

  SourceContext context_;
  std::unique_ptr<const HeldOutPairs> held_out_;
  bool needs_reference_ = false, needs_baseline_ = false;
  std::unique_ptr<const ReferenceLogprobs> reference_;
  std::string hash_;  ///< of the file with it
  std::string restored_hash_, restored_where_;
  double baseline_ = 0;  ///< of the last batch
};

/// Adds the log-probabilities of a batch's documents ([B*S], as TrainEngine::logprobs() returns them).
void add_documents(const data::Batch& batch, const std::vector<float>& logprobs,
                   ReferenceLogprobs& reference);
/// Fills columns.reference.
void fill_reference(const ReferenceLogprobs& reference, data::Batch& batch);

/// Numbers the sequences of a batch whose rows hold pairs of documents 2 i, 2 i + 1 (either may be absent).
/// Fills columns.sequence and returns the number of pairs and of sequences.
struct PairCount {
  int64_t pairs = 0, sequences = 0;
};
PairCount number_pairs(data::Batch& batch);

/// Of every sequence of a numbered batch: its prompt with the answer of the next sequence of another pair, of
/// the same side where there is one, in rows of the batch's length. `sequences`: how many; those that fit no
/// row are left out.
data::Batch mismatched_batch(const data::Batch& batch, int64_t rows_multiple, int64_t& sequences);

}  // namespace ingot
