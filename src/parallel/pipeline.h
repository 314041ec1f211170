// Runs the micro-batches of a step through the stages of a pipeline, in the order of this rank's table
// (pipeline_schedule.h).
//
// Each micro-batch has one tape per chunk. A stage sends every value that is live at its end
// (models/stage_boundary.h); the next stage takes them as inputs of its tape and sends their cotangents back.
// Receives are posted one entry of the table before their use. A send is waited for when as many messages are
// in flight as the schedule needs (PipelineShape::messages_held). Where the table merges a forward with a
// backward, the two run interleaved (interleaved_passes.h): while one waits for ranks of its tensor, context
// or expert group, the other computes.
#pragma once
#include <functional>
#include <memory>

#include "parallel/interleaved_passes.h"
#include "parallel/pipeline_groups.h"
#include "parallel/pipeline_schedule.h"

namespace ingot {

/// One micro-batch in one stage. Lives until its backward is done.
class PipelineStep {
 public:
  virtual ~PipelineStep() = default;
  /// The pipeline replaces its groups by ones that yield while they wait.
  virtual Context& context() = 0;
  /// Forward of a stage (StageForward) with the heads and losses that it has, whose cotangents seed the tape.
  /// Returns the live values for the next stage; none in the stage of the loss.
  virtual std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received) = 0;
};

/// Makes the step of a micro-batch on a tape.
using PipelineStepMaker = std::function<std::unique_ptr<PipelineStep>(Tape& tape, int micro_batch)>;

class Pipeline {
 public:
  /// Throws Error for a schedule of another shape than the layout's.
  Pipeline(const Decoder& decoder, const Precision& precision, const PipelineGroups& groups,
           PipelineSchedule schedule);

  /// Runs the table on all micro-batches, each with `rows` rows of the stream on this rank; a forward
  /// schedule with a tape that does not record is an evaluation. Tapes take their buffers from `arena` and
  /// everything else from `options`. On the null device nothing is sent, which gives the memory plan of this
  /// rank's whole step; passes interleave as on a device. Returns how many waits for groups were hidden.
  InterleavedPasses::Waits run(const PipelineStepMaker& make, int64_t rows, const TapeOptions& options,
                               Arena& arena, std::span<ScheduleObserver* const> observers = {}) const;

 private:
  const Decoder& decoder_;
  Precision precision_;
  const PipelineGroups& groups_;
  PipelineSchedule schedule_;
};

}  // namespace ingot
