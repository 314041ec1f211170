// `ingot bench ops`: percent of roofline of each op. Runs one training step and repeats each distinct
// execution alone, on the tensors of the step.
#pragma once
#include <string>
#include <vector>

#include "measure/profile.h"

namespace ingot {

struct OpsBenchOptions {
  std::vector<std::string> only;  ///< ops; empty: all
  int trials = 5;
  double seconds = 0.01;   ///< per trial, at least
  bool reference = false;  ///< also time the reference kernel, once
  bool cold = false;       ///< a trial is one call, before which caches are emptied of its tensors
  double read_gbs = 0;     ///< B where it is known; 0: measured
};

/// All executions with the same op, pass, attributes and shapes. A recomputation of what ran forward is none.
struct OpRow {
  std::string op, segment;  ///< segment: of the first of them
  OpPass pass = OpPass::forward;
  TimeOf what = TimeOf::kernels;
  std::string shapes;  ///< of the inputs: "1024x768 f32, 2304x768 f32"
  OpSizes sizes;
  int64_t calls = 0;  ///< in the step
  double flops = 0, bytes = 0;
  Spread seconds, share;  ///< of a call; share of the roofline, with P around each trial
  double reference_seconds = 0;
};

struct OpsBenchReport {
  std::string of, precision, isa;
  int threads = 1;
  int64_t batch = 0, length = 0;
  double peak_gflops = 0, read_gbs = 0;  ///< medians: P, and B of reading memory
  std::vector<OpRow> rows;               ///< in the order of first execution
  std::vector<std::string> absent;       ///< ops that the step does not use
  bool cold = false;
  /// Roofline time of a call: the longer of FLOPs / P and bytes / B.
  double roofline_seconds(const OpRow& row) const;
  /// Tokens of a sequence from which on attention's forward pass is limited by P: its FLOPs grow with their
  /// square, its bytes with their number. 0: the step has no attention.
  double attention_crossing() const;
};

/// Runs passes of the recipe's first phase (one micro-batch of random tokens), without an update.
OpsBenchReport bench_ops(const Recipe& recipe, const OpsBenchOptions& options);

/// A table of executions, and one of ops.
std::string to_text(const OpsBenchReport& report);
/// docs/measuring.md lists the fields.
std::string to_json(const OpsBenchReport& report);

}  // namespace ingot
