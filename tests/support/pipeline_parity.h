// A small model's step on a pipeline against one rank: what thread ranks and processes run alike.
#pragma once
#include <string>

#include "comm/world.h"
#include "parallel/pipeline.h"
#include "support/parity.h"

namespace ingot::test {

struct PipelineCase {
  ParityProblem problem;
  GridShape grid;
  std::string layout;  ///< empty: even
  int chunks = 1;      ///< of the even layout
  PipelineScheduleKind schedule = PipelineScheduleKind::one_forward_one_backward;
  int group = 0;                   ///< see PipelineShape
  bool sequence_parallel = false;  ///< see RankOptions
};

/// Runs this rank's part of the case and compares: initial weights bit for bit, loss to 1e-12, gradients and
/// their norm to 1e-9, peak memory with the dry run's.
void expect_pipeline_equals_one_rank(const PipelineCase& c, const OneRank& one, World& world);

}  // namespace ingot::test
