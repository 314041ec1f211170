// One stage of a model, which may be all of it: embedding, layers, final norm, modules of multi-token
// prediction and heads, as far as they stand there. Training, evaluation, sampling and planning run this,
// with and without a pipeline.
#pragma once
#include "models/decoder.h"
#include "parallel/pipeline_layout.h"

namespace ingot {

/// One micro-batch in one stage, as training sees it. Lives until its backward is done.
class StageStep {
 public:
  virtual ~StageStep() = default;
  virtual Context& context() = 0;
  virtual Value ids_T() = 0;
  /// The ids `depth` places further on; asked for where the tape records.
  virtual Value ids_ahead_T(int64_t depth);
  /// In the stage of the loss, for the next token (depth 0) and then for every depth ahead: the head, and
  /// cotangents of what the loss is made of, which seed the tape.
  virtual void predict(int64_t depth, Value hidden_TD) = 0;
  /// After the stage's forward: seeds the tape with the cotangents of its routers' losses.
  virtual void losses(const std::vector<BalanceLosses>&) {}
};

/// The places before and behind a stage, for a step on this tape.
Cut cut_before(const StageParts& parts, const ModelConfig& model, const TapeOptions& tape);
Cut cut_behind(const StageParts& parts, const ModelConfig& model, const TapeOptions& tape);

/// Forward of a stage. `received`: what is alive before it, unless it embeds. Returns the stream behind it.
Stream run_stage(const Decoder& decoder, const StageParts& parts, const std::vector<Value>& received,
                 StageStep& step);
/// Forward of a whole model.
void run_model(const Decoder& decoder, StageStep& step);

}  // namespace ingot
