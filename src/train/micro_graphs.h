// Forward and backward passes of micro-batches on a device, as graphs of it: captured once, replayed for
// later micro-batches and steps with other tokens, documents, routes and rates. A micro-batch's inputs and
// what the host reads of it have places of their own (train/micro_places.h); its buffers are those of a
// planned arena, whose addresses repeat. There is a graph for micro-batches whose gradients overwrite and one
// for those whose gradients add, of each capacity of the list of documents.
#pragma once
#include <memory>
#include <vector>

#include "tape/tape.h"
#include "train/micro_places.h"

namespace ingot {

/// How often passes ran without a graph, were captured, and ran as a graph.
struct MicroGraphCounts {
  int64_t eager = 0, captured = 0, replayed = 0;
};

/// Not thread-safe.
class MicroGraphs {
 public:
  /// Whether the passes of a step of one rank ask the host nothing and hold nothing that a graph cannot: with
  /// weights on a device that captures graphs, an objective that knows its cotangents, no
  /// observer, no routes that are given, nothing offloaded, and no attention of a program's own.
  static bool take(const Model& model, const data::Batch& batch, const StepOptions& options, Device& device);

  /// All must outlive this. `rows`: of a micro-batch.
  MicroGraphs(const Model& model, GradientBuffer& gradients, Device& device, int64_t rows);

  /// What the micro-batches of a step share.
  struct Step {
    const StepOptions& options;
    const TapeOptions& tape;
    PlannedArena& arena;
    const StepTokens& tokens;
    StepStats& stats;
    RunningCounts& running;
    StepReads& reads;
  };
  void begin_step(const StepOptions& options);
  /// Asks for the passes of a micro-batch, and for what the host reads of it.
  void run(const std::shared_ptr<const MicroBatch>& batch, const Step& step);
  /// The arena's memory is another from now on.
  void forget() { graphs_.clear(); }
  const MicroGraphCounts& counts() const { return counts_; }

 private:
  /// What kernels carry from a phase or a step, not from a micro-batch.
  struct Key {
    int64_t window = 0;
    double rope_theta = 0, z_coefficient = 0;
    float logit_scale = 1;               ///< of the objective
    const SlotPolicy* policy = nullptr;  ///< by identity
    const void* sums = nullptr;          ///< on the device
    KernelPolicy kernels = KernelPolicy::strict;
    bool operator==(const Key&) const = default;
  };
  struct Graph {
    int64_t document_capacity;
    std::vector<bool> written;  ///< gradients that had values before
    std::vector<int> writes;    ///< those that it gives values
    DeviceGraph graph;
  };
  void run_passes(const std::shared_ptr<const MicroBatch>& batch, const Step& step);
  void run_eagerly(const std::shared_ptr<const MicroBatch>& batch, const Step& step);
  /// The one for the micro-batch that was put in its place, captured now where there is none.
  const Graph& graph_of(const std::shared_ptr<const MicroBatch>& batch, const Step& step);
  std::vector<bool> written() const;

  const Model& model_;
  GradientBuffer& gradients_;
  Device& device_;
  MicroPlaces places_;
  Key key_;
  std::vector<Graph> graphs_;
  int64_t steps_ = 0;
  /// The last eager passes waited for nothing, allocated nothing and copied nothing that was not planned.
  bool is_quiet_ = false;
  bool said_ = false;
  MicroGraphCounts counts_;
};

}  // namespace ingot
