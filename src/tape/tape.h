// The tape: define-by-run recording of coarse, fused ops for a backward pass (tape/backward.h) that a
// schedule advances segment by segment. A node is an op, its attributes, and the ids of its inputs and
// outputs. It holds no closures, so a tape can be printed, counted, compared, and executed on the null
// device, where only memory and cost are counted.
//
// Lifetimes. A Value is a counted handle. A buffer lives while handles exist or backward still reads it. A
// policy may free it when the last handle is gone: a recomputed value is computed a second time when backward
// needs it (kernels are pure, so the bits are the same); an offloaded value is written to an OffloadStore
// while the next segment runs forward, and read back while the segment after its own runs backward; a value
// in FP8 is rounded, and backward reads the rounded value, as do recomputations that start from it. Forward,
// and values whose handles live until backward begins, are as they were.
// Transfers. What an op receives from other ranks may arrive while later ops run. The tape waits when
// somebody reads it, and keeps what is being sent until then. An op with Op::row_sliced begins with the rows
// that are this rank's own.
// Gradients. The first contribution to a gradient overwrites, later ones are added; the tape decides which.
// Gradients of parameters go to a GradientSink in the order (micro-batch, reverse tape index).
//
// The parts: slots.h (values, and where their buffers are), kernel_call.h (running kernels; profile and
// observer), transfers.h, gradients.h, forward.h (running one op), saved_values.h (what backward needs).
// Not thread-safe: one tape belongs to one thread; kernels inside are parallel.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "tape/node.h"
#include "tape/observer.h"
#include "tape/parameter_access.h"
#include "tape/value.h"
#include "tensor/arena.h"
#include "tensor/offload.h"

namespace ingot {

struct TapeOptions {
  DeviceKind device = DeviceKind::cpu;  ///< of the arena, and of what ops write
  /// Leaves and cotangents of the host are copied into the arena; on the null device, planned so. False:
  /// kernels read them where they are, or copy them each time.
  bool copies_leaves = false;
  bool record = true;                     ///< false: inference, nothing is saved
  bool defer_weight_gradients = false;    ///< leave weight gradients to Backward::run_deferred()
  bool check_finite = false;              ///< diagnosis: Error at the first op that makes a NaN or infinity
  const SlotPolicy* policy = nullptr;     ///< nullptr: keep everything
  OffloadStore* offload_store = nullptr;  ///< needed where the policy offloads on a device with memory
  GradientSink* sink = nullptr;           ///< nullptr: no parameter gradients
  Communicator* ranks = nullptr;          ///< others, whose data are moved along before each op; may be none
  TapeObserver* observer = nullptr;
  TapeProfile* profile = nullptr;
};

/// How a metric's values of micro-batches combine over a step.
enum class Reduce { sum, mean, max };

struct Metric {
  std::string name;
  int layer;
  Reduce reduce;
  Value value;
};

class Tape {
 public:
  Tape(Arena& arena, TapeOptions options);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// The caller's memory, on the host or on the tape's device, as a value. The memory must outlive the tape,
  /// unless it is copied. On the null device `data` is ignored.
  Value leaf(const Tensor& data, bool requires_grad = false);
  /// The same, never copied: for what the memory plan of a step does not know of.
  Value unplanned_leaf(const Tensor& data, bool requires_grad = false);
  /// A parameter's compute value; the same index gives the same value again. `gatherer` is called before
  /// every read.
  Value parameter(int index, const Tensor& data, ParameterGatherer* gatherer = nullptr);
  /// Runs and records an op. Absent optional inputs are default Values.
  std::vector<Value> apply(const Op& op, const AttrBox& attr, std::initializer_list<Value> inputs);
  template <class Attr>
  std::vector<Value> apply(const Op& op, const Attr& attr, std::initializer_list<Value> inputs) {
    return apply(op, AttrBox(attr), inputs);
  }

  /// Runs and records the ops of a pair, as two nodes; the second's output. Where the device has a kernel for
  /// both that takes them, it runs them at once.
  Value apply(const OpPair& pair, const AttrBox& first, std::initializer_list<Value> inputs,
              const AttrBox& second);

  /// Nodes from now on belong to this segment.
  void begin_segment(const char* name, int layer);

  /// An output that the trainer reports once per step.
  void metric(std::string name, int layer, Reduce reduce, Value value);
  const std::vector<Metric>& metrics() const { return metrics_; }

  /// Sets the gradient of the loss with respect to an output (its cotangent), from which backward starts. The
  /// tensor has the value's shape and dtype, and its memory outlives backward, unless it is copied.
  void seed(const Value& value, const Tensor& cotangent);
  /// Gradient of a leaf created with requires_grad, after backward; undefined if nothing contributed.
  Tensor gradient(const Value& leaf);

  const std::vector<Node>& nodes() const;
  const std::vector<Segment>& segments() const;
  /// Shape and dtype of a node's input or output, and the index of the parameter that it is (-1: none).
  std::pair<TensorMeta, int> meta_of(int32_t id) const;
  const TapeOptions& options() const;

 private:
  friend class Value;
  friend class Backward;
  struct Parts;

  /// A node that is about to run, with what it reads and writes.
  struct Execution;
  Execution prepare(const Op& op, const AttrBox& attr, std::span<const Value> inputs);
  void run(Execution& e);
  /// Appends the node to the recording, with what backward will need of its inputs and outputs.
  void record(Node node, std::span<const Tensor> outputs);

  std::unique_ptr<Parts> parts_;
  std::vector<Metric> metrics_;
};

}  // namespace ingot
