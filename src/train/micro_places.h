// Where the micro-batches of a step find what they read on a device, and leave what the host wants to know:
// at addresses that stay, so that a graph of their passes (train/micro_graphs.h) serves all of them. Each is
// one copy a micro-batch.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "train/micro_stats.h"
#include "train/micro_step.h"

namespace ingot {

/// A router's losses are means; each counts as much as the step's loss is divided by, times the share of the
/// step's rows that this router sees, which are so many.
RouterSeeds router_seeds(const MoeConfig& moe, const StepTokens& step, int64_t rows);

/// Of an objective that knows them, times `weight`: the column `cotangent`, or -weight.
std::vector<float> known_cotangents(const ColumnSpans& columns, size_t tokens, double weight);

/// Not thread-safe.
class MicroPlaces {
 public:
  /// Of micro-batches of so many rows.
  MicroPlaces(Device& device, const Model& model, int64_t rows);
  ~MicroPlaces();
  MicroPlaces(const MicroPlaces&) = delete;
  MicroPlaces& operator=(const MicroPlaces&) = delete;

  /// The micro-batches that follow are those of a new step.
  void begin_step();
  /// Copies a micro-batch there in the compute stream. Its sequences are whole, and its objective knows its
  /// cotangents.
  void put(const MicroBatch& batch, const RouterSeeds& seeds);

  // The places of what was put there.

  Tensor positions() const { return rows_at(0); }
  /// By depth: 0 is the next token's, of which the ids are the tokens.
  Tensor ids(int64_t depth) const { return rows_at(1 + 3 * depth); }
  Tensor targets(int64_t depth) const { return rows_at(2 + 3 * depth); }
  Tensor row_weights(int64_t depth) const;
  /// [1]
  Tensor aux_seed() const { return seed_at(0); }
  Tensor sequence_seed() const { return seed_at(1); }
  Tensor z_seed() const { return seed_at(2); }
  /// The list of documents (ops/sequence/documents.h); undefined where there are more than it takes.
  Tensor documents() const;
  /// RouterInputs::earlier_E1 of a layer; undefined where no balance loss sums over micro-batches.
  Tensor earlier_choices(int64_t layer) const;
  /// Of documents, in the list that was put there: 16, or four times as many, ...; 0: they do not fit.
  int64_t document_capacity() const { return capacity_; }

  /// The passes of a micro-batch begin: earlier_choices() are now those of all before it.
  void begin_results();
  /// Keeps the values of the micro-batch's next read, the same ones in each micro-batch, in a place of their
  /// own. Before allocate_results() it notes which they are.
  void take(const MicroRead& read, std::span<const Tensor> values);
  /// Adds the micro-batch's choices of a layer to what later ones find.
  void add_choices(int64_t layer, const Tensor& counts_E);
  /// The passes of the micro-batch have been asked for.
  void end_results() const;
  /// Takes memory for what the first micro-batch has noted.
  void allocate_results();
  bool has_results() const { return results_ != nullptr; }
  /// Reads what the passes have taken, with all else that the host reads of the step.
  void read_results(StepReads& reads, std::shared_ptr<const MicroStats> counts) const;

 private:
  struct Result {
    MicroRead read;
    std::vector<TensorMeta> values;
    std::vector<int64_t> bytes;  ///< where each begins
  };
  Tensor words_at(int64_t first, const Shape& shape, DType type) const;
  Tensor rows_at(int64_t column) const { return words_at(column * stride_, {rows_}, DType::i32); }
  /// Where a layer's choices are in `choices_`, in bytes.
  int64_t choices_at(int64_t layer) const;
  Tensor seed_at(int64_t which) const { return words_at(seeds_ + which, {1}, DType::f32); }

  Device& device_;
  const int64_t rows_, depths_, stride_, seeds_, documents_, most_documents_;  ///< in words, but rows
  std::vector<int32_t> host_;
  void* inputs_;
  int64_t capacity_ = 0;
  std::vector<Result> read_;
  size_t next_ = 0;
  int64_t result_bytes_ = 0;
  void* results_ = nullptr;
  // By layer the choices of the step so far, [E + 1]; behind all of them a copy as they were before the
  // micro-batch, which its backward pass reads too.
  std::vector<int64_t> choice_layers_;
  int64_t choice_words_ = 0, choice_bytes_ = 0;  ///< of a layer, of all
  void* choices_ = nullptr;
};

}  // namespace ingot
