// The contract of an operation: what the tape, the planner and the tests know about it. An op's folder in
// src/ops holds:
//   <op>.h         the specification (formula, shapes, dtypes, source), the attributes, and the builder
//                  function that models call: Values in, Values out
//   <op>.cpp       the Op itself: shape rule, cost, what backward reads
//   reference.cpp  plain loops in double: the oracle of the tests and the readable definition
//   cpu.cpp        from tensors to the fast kernels: which calls they accept, how threads share the work
//   isa_<op>.cpp   the inner loops, compiled once per instruction set
// An Op is immutable and shared by all threads. Kernels are pure functions: same inputs, same bits.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/enum.h"
#include "tape/axis_rule.h"
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

/// Where a gradient goes. An undefined tensor: nobody wants it.
struct GradSlot {
  Tensor tensor;
  bool accumulate = false;  ///< add to what is there; false: overwrite
  bool wanted() const { return tensor.defined(); }
};

/// Attributes of one node, stored by value: any trivially copyable struct of at most kBytes.
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

/// One execution of an op. Tensors are in the order of the Op's slots; an absent optional input is an
/// undefined tensor. Forward: d_out is empty, d_in as well unless the op has early_gradients. Backward: `in`
/// and `out` hold only what the op declared that it reads; an undefined d_out[i] counts as zero; every wanted
/// d_in must be written.
struct OpCall {
  const void* attr_data = nullptr;
  std::span<const Tensor> in;
  std::span<const Tensor> out;
  std::span<const Tensor> d_out;
  std::span<const GradSlot> d_in;
  void* scratch = nullptr;  ///< Op::scratch_bytes bytes, uninitialised
  Pending* pending =
      nullptr;  ///< an op with `transfers` may leave its operation here instead of waiting for it

  template <class Attr>
  const Attr& attr() const {
    return *static_cast<const Attr*>(attr_data);
  }
};

/// What one execution computes and moves. Every roofline figure starts from these numbers.
struct OpCost {
  double forward_flops = 0;
  double backward_input_flops = 0;
  double backward_weight_flops = 0;
  double bytes = 0;               ///< read and written by forward, each tensor once
  double wire_bytes[2] = {0, 0};  ///< sent to other ranks by forward, by backward_input
  double weight_bytes = 0;        ///< read and written by backward_weight; 0: as touched_bytes() says
};

/// How many rows of a tensor hold data, for ops over the rows of a permutation (ops/permute), whose tensors
/// have the capacity for the most rows that there can be. Kernels neither read nor write rows from `count`
/// on.
struct LiveRows {
  int64_t count = 0;
  uint32_t outputs = 0;    ///< the outputs that this applies to, as bits of slots
  uint32_t gradients = 0;  ///< the inputs whose gradients it applies to, as bits of slots
};

/// The inputs (bits of slots) that a kernel reads where they are weights in a format (tensor/tensor.h). It is
/// never called with another input in a format.
struct ReadableFormats {
  uint32_t rounded = 0;
  uint32_t packed = 0;  ///< in forward only
};

/// One implementation, on one device: its tensors lie there, but for leaves of the tape, which may lie on
/// the host. Kernels are tried in order. `refuse` looks at dtypes, attributes and all extents but the number
/// of rows, so that one implementation serves every number of rows (numerics rule 1).
struct Kernel {
  const char* name;                      ///< "cpu", "reference"
  const char* (*refuse)(const OpCall&);  ///< the reason, or nullptr: accepts
  void (*forward)(const OpCall&);
  void (*backward_input)(const OpCall&);   ///< nullptr only if no input is differentiable
  void (*backward_weight)(const OpCall&);  ///< nullptr if no input is InputKind::weight
  ReadableFormats formats = {};            ///< the reference reads every weight in every format
  DeviceKind device = DeviceKind::cpu;
  bool exact = true;          ///< on another device than the CPU: it has the CPU's bits
  bool (*is_on)() = nullptr;  ///< false: it refuses every call of the process now; nullptr: true
};

/// What the backward passes read: slot_bit(i) in a mask says that input (or output) i is read.
struct BackwardReads {
  uint32_t input_in = 0, input_out = 0;    ///< by backward_input
  uint32_t weight_in = 0, weight_out = 0;  ///< by backward_weight
};

constexpr uint32_t slot_bit(uint32_t i) {
  return 1u << i;
}

/// How an op computes its other outputs from one output that is still in memory: the same op, with the
/// attributes `attr`, given that output as input `input` and its own inputs `others` (bits of slots; the
/// remaining ones are absent), gives the same bits. In this call the tensor of that output is undefined.
struct PartialRecompute {
  uint32_t output, input, others;
  AttrBox attr;
};

struct Op {
  const char* name;
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
  BackwardReads (*reads)(const void* attr);
  /// Shapes and dtypes of the outputs, from the meta of `call.in`. InternalError for inputs that do not fit.
  void (*infer)(const OpCall& call, std::span<TensorMeta> out);
  OpCost (*cost)(const OpCall& call);
  int64_t (*scratch_bytes)(const OpCall& call);  ///< may be nullptr: none
  std::string (*print)(const void* attr);
  std::vector<Kernel> kernels;  ///< best first, the reference last

  // What follows is optional; nullptr or false: the op does not have the property.

  /// The op moves data between ranks and does nothing else, so its results may arrive while other ops run
  /// (OpCall::pending).
  bool transfers = false;
  /// For an op with `transfers`: the first row of its output that is this rank's whole and unchanged input.
  int64_t (*first_local_row)(const OpCall& call) = nullptr;
  /// Each row of the only output depends on that row of the first input and on all of the other inputs. The
  /// op may therefore run on slices of rows, beginning with those that are there already (numerics rule 1).
  bool row_sliced = false;
  /// What the null device runs in place of a kernel, for an op that communicates inside. It begins operations
  /// and waits for them where the kernel does, without data (Communicator::dry_run), so that work is
  /// interleaved as on a device.
  void (*dry_run)(const OpCall& call, bool backward) = nullptr;
  /// Which rows hold data, for an op over the rows of a permutation.
  LiveRows (*live_rows)(const OpCall& call) = nullptr;
  /// The inputs (bits of slots) whose gradients forward writes where they are wanted, for an op whose
  /// cotangents are known before backward. Neither backward_input nor a recomputation writes them again, and
  /// observers do not see them.
  uint32_t (*early_gradients)(const void* attr) = nullptr;
  /// For an op that merges the result of something longer (a module) and computes on from there: while the
  /// merged output stays in memory, its other outputs are recomputed from it, and nothing before it needs to
  /// be recomputed. std::nullopt: the op is recomputed whole.
  std::optional<PartialRecompute> (*partial_recompute)(const void* attr) = nullptr;
  /// A format fixes the results to the bit: every set of kernels computes the same, and the op is not in the
  /// fingerprint of the set, so runs of releases without it resume.
  bool has_bits_of_a_format = false;
  /// What the op makes of values that several ranks hold together (parallel/axis_types.h).
  AxisRule axis_rule = {};

  /// Whether its kernels talk to other ranks.
  bool communicates() const { return transfers || dry_run != nullptr; }
};

/// Two ops, of which `second` reads the only output of `first` and nothing else, and kernels of devices that
/// run both forward at once, in the bits of the kernels of each. A call of such a kernel has the inputs of
/// `first`, the attributes of `second` and the outputs of both; `refuse` sees the first output alone.
struct OpPair {
  const Op &first, &second;
  std::vector<Kernel> kernels;  ///< best first; none of the CPU, which runs one op after the other
};

/// Which kernels a run may use. strict (default): f32 and bf16 calls must find a fast kernel, else an Error
/// lists every refusal. any: falls back to the reference and logs it once per op. reference: always the
/// reference. On another device than the CPU strict demands a kernel of that device; any runs calls that no
/// kernel there takes on the host, reference every call.
enum class KernelPolicy { strict, any, reference };
constexpr auto enum_names(KernelPolicy) {
  return names_in_order<KernelPolicy>("strict", "any", "reference");
}
/// The policy of the process; thread-safe.
void set_kernel_policy(KernelPolicy policy);
KernelPolicy kernel_policy();

/// The kernel of the CPU that runs this call, whose tensors are on the host, under the policy.
const Kernel& select_kernel(const Op& op, const OpCall& call);
/// The kernel that runs this call, whose tensors are on `device`, not the CPU: the first of the device's that
/// takes it, else, where the device runs host code, the CPU's (tape/device_call.h). nullptr: the call runs on
/// the host (tape/host_shadow.h): where the device runs host code, an op that talks to other ranks and has no
/// kernel there; else as the policy allows, which is said once in the log. Error under the policy strict if
/// no kernel takes the call.
const Kernel* select_device_kernel(const Op& op, const OpCall& call, DeviceKind device);

/// The first kernel of `device` that runs this call of a pair; nullptr: the two ops run one after the other.
const Kernel* select_pair_kernel(const OpPair& pair, const OpCall& call, DeviceKind device);

/// The number of rows in use according to a permutation's `offsets` (i32 [E+1], the last is the end); `rows`,
/// the capacity, if `offsets` is undefined. Copies `offsets` from a device.
int64_t rows_before_end(const Tensor& offsets, int64_t rows);
/// Fills the rows that the call did not write with zeros, for observers, who look at whole tensors.
void clear_beyond_live_rows(const Op& op, const OpCall& call);

/// Op::early_gradients of these attributes; 0 if the op has none.
uint32_t early_slots(const Op& op, const void* attr);

/// Bytes of all defined inputs and outputs: the traffic of an op that touches each tensor once.
double tensor_bytes(const OpCall& call);
/// Bytes that a backward call reads and writes: each tensor once, a gradient that is accumulated twice.
double touched_bytes(const OpCall& call);

}  // namespace ingot
