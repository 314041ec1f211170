// The op test driver: one OpCase describes a problem; check_op() runs every test that an op must pass:
//   value       fast kernel against the reference in double on the same inputs
//   gradient    analytic (reference, double) against central finite differences; fast backward against the
//               reference
//   accumulate  a gradient slot that accumulates adds exactly what it would have set
//   rest        the op's rest (PartialRecompute), where it has one, gives the bits of the whole with every
//               kernel
//   invariance  same bits for 1 and 2 threads, on every instruction set this CPU has, and (where rows are
//               independent) for the first rows alone
// Empty and odd sizes are cases like any other. With INGOT_OP_CHECK=emulated it compares the op's kernels for
// GPUs, emulated with three seeds, with the CPU's bits instead: the label `emulated` runs the same tests so.
// Those without the CPU's bits (tensor cores) are compared with the reference in double, and their bits with
// each other's: of every seed, and of the first rows alone.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tape/op.h"

namespace ingot::test {

/// How the weights of a case are stored.
struct Stored {
  DType type;
  const WeightFormat* format = nullptr;
  std::string name() const { return TensorMeta{{}, type, format}.str(); }
};
inline constexpr Stored kStored[] = {{DType::f32}, {DType::bf16}, {DType::bf16, &kRoundedWeight}};

/// One input of a case. Integer inputs give their values; floating ones are drawn N(0, scale) + offset.
struct CaseInput {
  TensorMeta meta;
  double scale = 1.0;
  double offset = 0.0;
  std::vector<int32_t> ints;  ///< i32 and u8 inputs
  bool present = true;
  bool row_indexed = false;    ///< dimension 0 counts rows (tokens); the row-invariance test shortens it
  std::vector<double> values;  ///< floating inputs that must not be random; rounded to the input's type
};

struct OpCase {
  std::string name;
  const Op* op;
  AttrBox attr;
  AttrBox attr_double = attr;  ///< for runs in double, where output dtypes in the attributes must say f64
  std::vector<CaseInput> inputs;
  std::vector<bool> output_row_indexed;  ///< per output; empty: no row-invariance test (op mixes rows)
  double value_tolerance = 2e-6;  ///< max |fast - double reference| / max |reference|, per output (f32)
  double gradient_tolerance = 1e-5;
  bool finite_differences = true;  ///< off for large cases
  /// On tensor cores products take what others gave, rounded to bf16: how near results are is said of the
  /// largest of the tensor, not of the row, and gradients have two roundings.
  bool rounds_between = false;
  uint64_t seed = 1;
};

/// Runs everything above with gtest expectations. Prints a one-line reproducer (case name and seed) on
/// failure.
void check_op(const OpCase& c);

/// Which kernels of GPUs the process compares with the CPU's, doing nothing else: "emulated", "cuda" or "".
std::string_view checked_kernels();
/// For `ingot gpu prove` (measure/gpu_proof_run.h): a line of what a kernel of gpu_kernel_names() did.
void record_kernel_case(const std::string& kernel, const std::string& name, bool passed);
/// Of the test that runs.
int failures_so_far();

}  // namespace ingot::test
