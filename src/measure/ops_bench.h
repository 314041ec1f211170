// How close each op comes to what its FLOPs and bytes allow: every distinct execution of one training step of
// a model is made again and again, alone, on the very tensors that the step gives it. What `ingot bench ops`
// prints.
#pragma once
#include <string>
#include <vector>

#include "measure/profile.h"

namespace ingot {

struct OpsBenchOptions {
  std::vector<std::string> only;  ///< ops; empty: all
  int trials = 5;
  double seconds = 0.01;   ///< of a trial, at least
  bool reference = false;  ///< times the op's reference too, once
};

/// Executions of one op, pass, attributes and shapes.
struct OpRow {
  std::string op, segment;  ///< segment: the first that has it
  OpPass pass = OpPass::forward;
  std::string shapes;  ///< of what it reads: "1024x768 f32, 2304x768 f32"
  int64_t calls = 0;   ///< in the step
  double flops = 0, bytes = 0;
  Spread seconds, share;  ///< of a call; share of the speed of light, P measured around each trial
  double reference_seconds = 0;
};

struct OpsBenchReport {
  std::string of, precision, isa;
  int threads = 1;
  int64_t batch = 0, length = 0;
  double peak_gflops = 0, read_gbs = 0;  ///< medians: P, and B of reading memory
  std::vector<OpRow> rows;               ///< in the order of first execution
  std::vector<std::string> absent;       ///< ops of this program that the step does not have
  /// Seconds that a call needs at least: its FLOPs at P or its bytes at B, whichever is longer.
  double light_seconds(const OpRow& row) const;
};

/// Runs passes of the recipe's first phase (one micro-batch of random tokens), without an update.
OpsBenchReport bench_ops(const Recipe& recipe, const OpsBenchOptions& options);

/// A table of executions, and one of ops.
std::string to_text(const OpsBenchReport& report);
/// {"format": 1, "of", ..., "rows": [...], "absent": [...]}; docs/measuring.md has the fields.
std::string to_json(const OpsBenchReport& report);

}  // namespace ingot
