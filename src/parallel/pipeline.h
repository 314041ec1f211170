// Runs the micro-batches of a step through the stages of a pipeline, as the table of this rank says
// (pipeline_schedule.h).
//
// Each micro-batch has a tape per chunk. A cut sends every value that is alive there (models/decoder.h,
// Stream); the stage behind takes them as inputs of its tape and sends their cotangents back. Receives begin
// one entry of the table ahead of their use. A send is waited for when as many messages are on their way as
// the schedule needs (PipelineShape::messages_held).
//
// Where the table merges a forward with a backward, the two are strands (strands.h): while one waits for
// ranks of its tensor, context or expert group, the other computes.
#pragma once
#include <functional>
#include <memory>

#include "parallel/interleaved_passes.h"
#include "parallel/pipeline_groups.h"
#include "parallel/pipeline_schedule.h"
#include "parallel/stage.h"

namespace ingot {

/// Makes the step of a micro-batch on a tape.
using StageStepMaker = std::function<std::unique_ptr<StageStep>(Tape& tape, int micro_batch)>;

class Pipeline {
 public:
  /// Throws Error for a schedule of another shape than the layout's.
  Pipeline(const Decoder& decoder, const Precision& precision, const PipelineGroups& groups,
           PipelineSchedule schedule);

  /// The table's work on all micro-batches (with a forward schedule, and a tape that does not record,
  /// evaluation), each of `rows` rows of the stream on this rank. Tapes take their buffers from `arena` and
  /// everything else from `options`. On the null device nothing is sent, which gives the memory plan of this
  /// rank's whole step: strands take turns there as on a device. `observers` hear of every entry. Returns how
  /// many waits for groups were hidden.
  InterleavedPasses::Waits run(const StageStepMaker& make, int64_t rows, const TapeOptions& options,
                               Arena& arena, std::span<ScheduleObserver* const> observers = {}) const;

 private:
  const Decoder& decoder_;
  Precision precision_;
  const PipelineGroups& groups_;
  PipelineSchedule schedule_;
};

}  // namespace ingot
