// One forward pass through a stage of the model: all of it on a single rank, or the parts that one (virtual)
// stage of a pipeline has. Training, evaluation, generation and planning all go through StageForward.
#pragma once
#include "models/decoder.h"

namespace ingot {

/// The parts of the model in one stage; all zero: a stage that passes values on.
struct StageParts {
  bool embedding = false;
  int64_t first_layer = 0, layers = 0;
  int64_t first_module = 0, modules = 0;  ///< of multi-token prediction
  bool loss = false;
  bool operator==(const StageParts&) const = default;
};
StageParts whole_model(const ModelConfig& config);

/// The forward of one stage, in the order of the tape: the constructor, then head_input() for each depth.
class StageForward {
 public:
  /// Runs the embedding, or resumes from the values that the stage before sent (`received`), and then the
  /// layers.
  StageForward(const Decoder& decoder, const StageParts& parts, Context& c, const Value& ids_T,
               const std::vector<Value>& received = {});
  /// How many depths the pass predicts ahead of the next token: all in training, none where the tape does not
  /// record.
  int64_t depths() const { return depths_; }
  /// Runs the final norm (depth 0), or the multi-token prediction module of a depth, if this stage has it.
  /// Returns the input of the head [T, D] in the stage of the loss, else an absent value. Call for depths 0
  /// to depths() in order, each head before the next depth. `shifted_ids`: i32 [T], the ids `depth` positions
  /// later; not read at depth 0.
  Value head_input(int64_t depth, const Tensor& shifted_ids = {});
  /// One per MoE layer of the stage so far.
  std::vector<BalanceLosses>& balance_losses() { return balance_; }
  /// The values that the next stage receives.
  std::vector<Value> live_values() const;

 private:
  bool has_depth(int64_t depth) const;
  int64_t module_of(int64_t depth) const;

  const Decoder& decoder_;
  StageParts parts_;
  Context& c_;
  int64_t depths_;
  std::vector<BalanceLosses> balance_;
  Stream stream_;
};

}  // namespace ingot
