// The tape: define-by-run recording of coarse, fused ops, and a backward pass that a schedule can advance segment by
// segment. A node is an op, its attributes, the ids of its inputs and outputs; nothing else (no closures), so a tape can
// be printed, counted, compared, and executed on the null device, where only memory and cost are counted.
//
// Lifetimes. A Value is a counted handle. A value's buffer lives while handles exist or a recorded node still needs it
// for backward. A policy may let the buffer go when the last handle does: under recompute its producer runs again when
// backward asks for it, or the rest of it behind an output that stays (kernels are pure: same bits); under offload it is
// written to a slower tier while the next segment runs forward, and read back while the segment after its own runs backward.
// Transfers. What an op receives from other ranks may arrive while later ops run: the tape waits when somebody reads it,
// and keeps what is being sent until then. An op by rows (tape/op.h) begins with the rows that were this rank's own. While backward has transfers, weight gradients of a layer are computed where
// something waits, at the latest at the layer's end.
// Gradients. Each gradient slot is written by its first contribution and accumulated by later ones; the tape decides
// which. Parameter gradients go to a GradientSink in the order (micro-batch, reverse tape index).
// Not thread-safe: one tape belongs to one thread (kernels inside are parallel).
#pragma once
#include <cstdint>
#include <deque>
#include <exception>
#include <initializer_list>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tape/op.h"
#include "tape/parameter_access.h"
#include "tape/value.h"
#include "tensor/arena.h"
#include "tensor/offload.h"

namespace ingot {

/// A named run of nodes; the unit by which backward advances.
struct Segment {
  const char*
      name;   ///< "embed", "attention", "route", "dispatch", "experts", "combine", "mlp", "head", "stream"
  int layer;  ///< -1 outside layers
  int32_t first_node;
  int32_t end_node;
};

/// What happens between forward and backward to an output that backward reads.
enum class SlotFate { keep, recompute, offload };

/// Decides it per (op, output slot, segment).
class SlotPolicy {
 public:
  virtual ~SlotPolicy() = default;
  virtual SlotFate fate(const Op& op, int output, const Segment& segment) const = 0;
};

/// A recorded execution. Ids index the tape's values; -1: absent optional input.
struct Node {
  const Op* op;
  AttrBox attr;
  std::vector<int32_t> inputs, outputs;
  int32_t segment;
  bool differentiable = false;  ///< some output needs a gradient
  bool recipe_held = false;     ///< what recipe_of() reads is held so that outputs can be recomputed
};

enum class Direction { forward, backward_input, backward_weight };

/// One execution of an op's kernel. By rows (tape/op.h) there may be several for one node.
struct OpRun {
  const Op& op;
  const Segment& segment;
  Direction direction;
  bool is_recompute;                ///< forward, repeated for backward
  double begin, end;                ///< by monotonic_seconds()
  double flops, bytes, wire_bytes;  ///< OpCost; bytes that a backward pass reads and writes: touched_bytes()
  const OpCall& call;               ///< as the kernel had it, scratch included
};

/// Sees every execution: debug dumps, comparisons and profiles.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  /// Told when it is over, in the order of execution, on devices with memory.
  virtual void ran(const OpRun&) {}
  /// False: tensor() is never called. To name tensors takes longer than small ops do.
  virtual bool wants_tensors() const { return true; }
  /// `name` is unique on the tape and stable between runs, e.g. "layer3.attention.linear#1.y" or "...linear#1.d_x".
  virtual void tensor(const std::string& name, const Tensor& value) = 0;
};

/// Time and work per op and direction, added up over tapes.
struct OpProfile {
  int64_t calls = 0;
  double seconds[3] = {0, 0, 0};  ///< by Direction
  double flops[3] = {0, 0, 0};
  double wire_bytes = 0;  ///< sent to other ranks
};
using TapeProfile = std::map<std::string, OpProfile>;

struct TapeOptions {
  DeviceKind device = DeviceKind::cpu;
  bool record = true;                     ///< false: inference, nothing is saved
  bool defer_weight_gradients = false;    ///< queue backward_weight until drain()
  bool check_finite = false;              ///< diagnosis: throw at the first op that makes a NaN or infinity
  const SlotPolicy* policy = nullptr;     ///< nullptr: keep everything
  OffloadStore* offload_store = nullptr;  ///< needed where the policy offloads on a device with memory
  GradientSink* sink = nullptr;           ///< nullptr: no parameter gradients
  TapeObserver* observer = nullptr;
  TapeProfile* profile = nullptr;
};

/// How a metric's per-micro-batch values combine over a step.
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

  /// Memory of the caller as a value; it must outlive the tape. On the null device data is ignored.
  Value leaf(const Tensor& data, bool requires_grad = false);
  /// A parameter's compute value; the same index gives the same value again. `keeper`: to ask before every read.
  Value parameter(int index, const Tensor& data, ParameterGatherer* gatherer = nullptr);
  /// Runs (and records) an op. Absent optional inputs are default Values.
  std::vector<Value> apply(const Op& op, const AttrBox& attr, std::initializer_list<Value> inputs);
  template <class Attr>
  std::vector<Value> apply(const Op& op, const Attr& attr, std::initializer_list<Value> inputs) {
    return apply(op, AttrBox(attr), inputs);
  }

  /// Nodes from now on belong to this segment.
  void begin_segment(const char* name, int layer);

  /// A pure output that the trainer commits once per step.
  void metric(std::string name, int layer, Reduce reduce, Value value);
  const std::vector<Metric>& metrics() const { return metrics_; }

  /// Sets the cotangent of a value (memory of the caller, same shape and dtype, alive until backward is done).
  void seed(const Value& value, const Tensor& cotangent);
  /// Gradient of a leaf created with requires_grad; undefined if nothing contributed.
  Tensor gradient(const Value& leaf);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Segment>& segments() const { return segments_; }
  /// Of a node's input or output: shape and type, and the parameter that it is (-1: none).
  std::pair<TensorMeta, int> meta_of(int32_t id) const;
  const TapeOptions& options() const { return options_; }
  Arena& arena() { return arena_; }
  /// One line per node: segment, op, attributes, inputs and outputs with shapes.
  std::string dump() const;

  /// Deferred weight gradients that wait.
  size_t deferred() const { return deferred_.size(); }
  /// Runs the oldest `count` (all by default) of them.
  void drain(size_t count = SIZE_MAX);

 private:
  friend class Value;
  friend class Backward;
  struct Slot {
    TensorMeta meta;
    void* data = nullptr;
    Block block;
    int32_t producer = -1;
    int32_t parameter = -1;
    ParameterGatherer* gatherer = nullptr;
    int32_t handles = 0;
    int32_t holds = 0;   ///< reads by backward and by recipes still to come
    int32_t uses = 0;    ///< parameters: contributions still to come
    int32_t queued = 0;  ///< parameters: contributions in the deferred queue
    bool owned = false, requires_grad = false, present = false;
    SlotFate fate = SlotFate::keep;
    bool leaving = false;   ///< being written; still present
    bool away = false;      ///< only in the tier
    bool arriving = false;  ///< being read into its block; not present yet
    OffloadStore::Handle ticket = -1;
    int32_t fetch_round = -1;  ///< the last fetch_segment that came by
    Tensor gradient;
    Block gradient_block;
    bool gradient_written = false, gradient_owned = false,
         gradient_done = false;                     ///< done: released, but for being lent
    int32_t transfer = -1, gradient_transfer = -1;  ///< that the value, or its gradient, arrives with
    int32_t lent = 0, gradient_lent = 0;            ///< transfers that send it
  };
  /// An operation between ranks that nobody has waited for, and the slots that it reads and writes.
  struct Transfer {
    Pending pending;
    int32_t node = -1;      ///< to show observers when it has landed; -1: a repetition
    bool backward = false;  ///< moves gradients
    std::vector<int32_t> from, to;
    int64_t first_local_row = -1;  ///< where what is sent begins among the rows that come; -1: nowhere
    bool landed = false;
  };

  Tensor tensor_of(int32_t id) const;
  Tensor arrived(int32_t id);                       ///< waits for it
  Tensor input_of(int32_t id);                      ///< for an op that reads it
  std::vector<Tensor> inputs_of(const Node& node);  ///< for run_forward
  int32_t coming_by_rows(
      const Node& node) const;  ///< the transfer that an op by rows need not wait for, or -1
  int32_t add_value(const TensorMeta& meta);
  void allocate(Slot& v, const char* category);
  std::vector<GradSlot> early_gradients(const Node& node);  ///< for forward to write
  void run_forward(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out, bool again);
  void execute(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out, Pending* pending);
  void execute_by_rows(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                       int32_t transfer);
  bool watched() const {
    return (options_.observer != nullptr && options_.observer->wants_tensors()) || options_.check_finite;
  }
  bool timed() const { return options_.profile != nullptr || options_.observer != nullptr; }
  /// Tells profile and observer of an execution that began at `begin` and is over. `call`: its tensors.
  void account(const Node& node, const OpCall& call, Direction direction, double begin);
  void take_off(Pending pending, int32_t node, std::vector<int32_t> from, std::vector<int32_t> to,
                bool backward);
  void land(int32_t transfer);
  void land_all();
  void land_quietly(int32_t transfer);  ///< where nothing may be thrown: failure_ is, at the next op
  void record(Node node);
  void hold_reads(const Node& node);
  void hold(int32_t id) { ++slots_[static_cast<size_t>(id)].holds; }
  void unhold(int32_t id);
  void drop_handle(int32_t id);
  void release_if_unused(int32_t id);  ///< frees what nobody needs any more
  void free_buffer(Slot& v);
  void start_offload(int32_t id);
  void finish_offloads(int32_t before_segment);
  void cancel_offloads();
  void fetch_segment(const Segment& segment);
  void fetch(int32_t id);
  void arrive(Slot& v);
  void forget_ticket(Slot& v);
  Node recipe_of(
      const Node& node) const;  ///< forms its outputs again (those that are not -1): itself, or its op's rest
  void release_recipe(Node& node);
  void materialise(int32_t id);
  void backward_node(int32_t index);
  /// Whether the queue holds contributions to a parameter that the node's inputs' gradients go to as well: they come first,
  /// because contributions are added in reverse tape order.
  bool overtakes_queue(const Node& node) const;
  void count_queued(const Node& node, int change);
  void run_backward(int32_t index, Direction direction);
  OpCost cost_of(const Node& node, std::span<const GradSlot> d_in) const;
  void finish_node(int32_t index, Direction direction);
  GradSlot gradient_slot(int32_t id);
  void release_gradient(Slot& v);
  std::string tensor_name(int32_t node, const char* slot) const;
  void observe(int32_t node, Direction direction, std::span<const Tensor> tensors);
  void check_finite(int32_t node, Direction direction, std::span<const Tensor> tensors) const;

  Arena& arena_;
  TapeOptions options_;
  std::pmr::monotonic_buffer_resource memory_;  ///< of slots and parameters
  std::pmr::deque<Slot> slots_{&memory_};
  std::vector<Node> nodes_;
  std::vector<Segment> segments_;
  std::pmr::map<int, int32_t> parameters_{&memory_};
  std::vector<Metric> metrics_;
  std::deque<int32_t> deferred_;
  int32_t fetch_round_ = 0;
  int64_t values_away_ = 0;
  std::deque<std::pair<int32_t, int32_t>> leaving_;  ///< value, segment in which its writing began
  std::deque<Transfer> transfers_;
  std::exception_ptr failure_;
  bool in_backward_ = false;
};

/// Backward as an object: each advance() runs one segment, last to first.
class Backward {
 public:
  explicit Backward(Tape& tape);
  /// Runs the next segment; false when there is none left. Deferred weight gradients are left to Tape::drain().
  bool advance();
  /// The segment that advance() would run.
  const Segment* next() const;
  /// Everything that is left, and the deferred queue.
  void run();

 private:
  Tape& tape_;
  int32_t segment_;
};

}  // namespace ingot
