// The contract of an operation: what the tape, the planner and the tests know about it. One folder per op:
//   <op>.h         what it computes (formula, shapes, dtypes, source), its attributes, and one builder function that
//                  models call: Values in, Values out
//   <op>.cpp       the Op: shape rule, cost, slots, and the glue from Tensors to kernels
//   reference.cpp  plain loops in float or double: the oracle and the document
//   isa_cpu.cpp    the fast CPU kernel
// An Op is immutable and shared; kernels are pure functions of their call (same inputs, same bits).
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tensor/tensor.h"

namespace ingot {

class Pending;  // comm/communicator.h

/// What an input is to the backward pass.
enum class InputKind {
  activation,  ///< its gradient is on the critical path: written by backward_input
  parameter,   ///< a small parameter (norm weight, bias): its gradient is written by backward_input as well
  weight,      ///< a matrix whose gradient may be deferred: written by backward_weight
  data         ///< indices, masks, constants: never has a gradient
};

struct InputSlot {
  const char* name;
  InputKind kind = InputKind::activation;
  bool optional = false;
};

struct OutputSlot {
  const char* name;
  bool differentiable = true;
};

/// Where a gradient goes. Undefined tensor: nobody wants it. accumulate: add to what is there, else overwrite.
struct GradSlot {
  Tensor tensor;
  bool accumulate = false;
  bool wanted() const { return tensor.defined(); }
};

/// Attributes of one node: any trivially copyable struct of at most kBytes, stored by value (no closures on a tape).
class AttrBox {
 public:
  static constexpr size_t kBytes = 128;
  AttrBox() = default;
  template <class Attr>
  explicit AttrBox(const Attr& attr) {
    static_assert(std::is_trivially_copyable_v<Attr> && sizeof(Attr) <= kBytes);
    std::memcpy(bytes_, &attr, sizeof(Attr));
  }
  const void* data() const { return bytes_; }

 private:
  alignas(16) unsigned char bytes_[kBytes] = {};
};

/// One execution of an op, forward or backward. Slots are in the order of the Op's lists; an absent optional input is
/// an undefined tensor. In backward, `in` and `out` hold only what the op declared it reads, d_out[i] may be undefined
/// (that output got no cotangent: it counts as zero), and every wanted d_in must be written. In forward d_in is empty but
/// for Op::early_gradients.
struct OpCall {
  const void* attr_data = nullptr;
  std::span<const Tensor> in;
  std::span<const Tensor> out;
  std::span<const Tensor> d_out;
  std::span<const GradSlot> d_in;
  void* scratch = nullptr;     ///< Op::scratch_bytes bytes, uninitialised
  Pending* pending = nullptr;  ///< for an op that transfers: where it may leave its handle instead of waiting

  template <class Attr>
  const Attr& attr() const {
    return *static_cast<const Attr*>(attr_data);
  }
};

/// What one execution moves and computes; the base of every speed-of-light figure.
struct OpCost {
  double forward_flops = 0;
  double backward_input_flops = 0;
  double backward_weight_flops = 0;
  double bytes = 0;               ///< read + written by the forward, each tensor once
  double wire_bytes[2] = {0, 0};  ///< sent to other ranks: forward, backward_input
  double weight_bytes =
      0;  ///< read + written by backward_weight; 0: each tensor that the call names, as touched_bytes()
};

/// Where the rows of a permutation (ops/permute) end: its tensors have room for more. Rows from `count` on are neither
/// written nor read.
struct LiveRows {
  int64_t count = 0;
  uint32_t outputs = 0,
           gradients = 0;  ///< of which outputs, and of the gradients of which inputs: bits of slots
};

/// One implementation. Kernels are tried in order; `refuse` looks at dtypes, attributes and all extents but the number
/// of rows (numerics rule 1: one implementation serves every number of rows).
struct Kernel {
  const char* name;                      ///< "cpu", "reference"
  const char* (*refuse)(const OpCall&);  ///< why not, or nullptr: accepts
  void (*forward)(const OpCall&);
  void (*backward_input)(const OpCall&);   ///< nullptr only if no input is differentiable
  void (*backward_weight)(const OpCall&);  ///< nullptr if no input is InputKind::weight
};

/// Bit i of a mask: input (or output) i is read.
struct BackwardReads {
  uint32_t input_in = 0, input_out = 0;    ///< what backward_input reads
  uint32_t weight_in = 0, weight_out = 0;  ///< what backward_weight reads
};

/// An op from one of its outputs on: given that output in the place of `input`, and of its other inputs those in `others` (bits
/// of slots), the same op with these attributes gives the other outputs, bit for bit. In that call the output is an undefined tensor.
struct OpRest {
  uint32_t output, input, others;
  AttrBox attr;
};

struct Op {
  const char* name;
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
  BackwardReads (*reads)(const void* attr);  ///< what the backward passes read, given the attributes
  /// Shapes and dtypes of the outputs; fails with INGOT_CHECK on inputs that do not fit. `in` holds metas in `meta`.
  void (*infer)(const OpCall& call, std::span<TensorMeta> out);
  OpCost (*cost)(const OpCall& call);
  int64_t (*scratch_bytes)(const OpCall& call);  ///< may be nullptr: none
  std::string (*print)(const void* attr);
  std::vector<Kernel> kernels;  ///< best first, the reference last
  /// Moves data between ranks and does nothing else: its results may come while other ops run (OpCall::pending).
  bool transfers = false;
  /// Of one that transfers: the first row of its output that is this rank's input, whole and unchanged; nullptr: none is.
  int64_t (*own_row)(const OpCall& call) = nullptr;
  /// Each row of its only output follows from that row of the first input and all of the others, so it may be computed in
  /// parts, beginning with rows that are there (numerics rule 1).
  bool by_rows = false;
  /// Of one that speaks to other ranks: what the null device does in place of a kernel. It begins operations and waits for
  /// them where the kernel does, with nothing to move (Communicator::rehearse), so that work takes turns as on a device.
  void (*dry_run)(const OpCall& call, bool backward) = nullptr;
  /// Of one over the rows of a permutation; nullptr: it writes its tensors whole.
  LiveRows (*live_rows)(const OpCall& call) = nullptr;
  /// Of one whose cotangents are known before backward: inputs (bits of slots) whose gradients forward writes, where they
  /// are wanted; backward_input is not asked for them, a repetition of forward neither. nullptr: none. Observers do not see them.
  uint32_t (*early_gradients)(const void* attr) = nullptr;
  /// Of one that ends something longer (a module, whose result it merges) and goes on from there: where its other outputs are
  /// computed again while that output stays, only the rest runs, and what is behind it is not needed. nullptr or none: it runs whole.
  std::optional<OpRest> (*rest)(const void* attr) = nullptr;
};

/// Which kernels a run may use. strict (default): f32 and bf16 problems must find a fast kernel, else an Error that
/// lists every refusal. any: falls to the reference and logs it once per op. reference: always the reference.
enum class KernelPolicy { strict, any, reference };
void set_kernel_policy(KernelPolicy policy);
KernelPolicy kernel_policy();
/// The policy of that name, or an Error that lists them.
KernelPolicy kernel_policy_from(std::string_view name);

/// The kernel that runs this call under the policy.
const Kernel& select_kernel(const Op& op, const OpCall& call);

/// Every op of the system, by name: for tests, `--kernels=list` and the fingerprint. An op that is not here does not
/// exist for the op tests, and the registry test fails if a folder of ops/ is missing.
const std::vector<const Op*>& all_ops();
/// Adds an op of a program that uses the library (docs/extend-op.md); it must live as long as the program. Before anything
/// runs: the fingerprint of runs contains it. Error for a name that is taken.
void register_op(const Op& op);

/// Bit of slot i in a BackwardReads mask.
constexpr uint32_t slot_bit(uint32_t i) {
  return 1u << i;
}

/// What the last of a permutation's `offsets` (i32 [E+1]) says; without them all `rows`.
int64_t rows_before_end(const Tensor& offsets, int64_t rows);
/// Puts zeros where the call wrote nothing, for those who look at whole tensors.
void clear_beyond_live_rows(const Op& op, const OpCall& call);

/// Op::early_gradients, 0 where there are none.
uint32_t early_slots(const Op& op, const void* attr);

/// Bytes of all defined inputs and outputs of a call: the traffic of an op that touches each tensor once.
double tensor_bytes(const OpCall& call);
/// Of a backward call: what it reads and writes, each tensor once, a gradient on top of others twice.
double touched_bytes(const OpCall& call);

/// Hash of what decides the bits of results: op, kernel order, instruction set. Recorded in runs and checkpoints.
std::string kernel_set_fingerprint();

}  // namespace ingot
