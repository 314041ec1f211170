// Weight sets and gradients: the memory behind a parameter table, in flat buffers with named views.
//
// A WeightSet holds masters (fp32, or f64 for parity runs). Where the compute type is bf16, products read the masters as their
// roundings (DType::f32_as_bf16), and the step's memory is that of fp32; only where masters come and go, shared out over ranks
// or on the way into packed weights, there are bf16 copies of every matrix. Vectors are always used in the master's type. Policy, reference, teacher and average models
// are weight sets over one table. Gradients are sums over tokens in the master's type, with a written bit per parameter
// and step.
//
// Where ranks share weights out (Placement::sharing), every tensor keeps its addresses, but only this rank's shares have
// memory all the time; of the rest, memory comes when a unit is written and goes when it is released. Not thread-safe.
#pragma once
#include <functional>
#include <vector>

#include "nn/flat_layout.h"
#include "tape/tape.h"
#include "tensor/buffer.h"

namespace ingot {

/// Types of a model's execution. compute: products' operands and sublayer outputs; stream: residual stream, vectors,
/// statistics.
struct Precision {
  DType compute = DType::f32;
  DType stream = DType::f32;
  static Precision f32() { return {DType::f32, DType::f32}; }
  static Precision bf16() { return {DType::bf16, DType::f32}; }
  static Precision f64() { return {DType::f64, DType::f64}; }
};

class WeightSet {
 public:
  /// Allocates zeroed memory. `table` must outlive the set.
  WeightSet(const ParameterTable& table, const Placement& placement, const Precision& precision,
            Backing backing = Backing::memory);

  void initialize(uint64_t seed);
  /// Writes the compute copies from the masters (all of them, or one).
  void refresh_compute();
  void refresh_compute(int index);
  /// All masters of a unit have been written, on every rank alike: makes the copies, and keeps what this rank has to keep.
  void filled(int unit);

  const ParameterTable& table() const { return table_; }
  const Placement& placement() const { return placement_; }
  const Precision& precision() const { return precision_; }
  int size() const { return table_.size(); }
  Tensor master(int index) const;
  const FlatLayout& layout() const { return layout_; }
  /// What ranks send each other of a unit, with its padding: the copies where all of its tensors have them, else the masters.
  Tensor travelling(int unit) const;
  /// The travelling tensor has come: what it does not hold itself follows.
  void arrived(int unit);
  /// Gives back the memory of a unit's compute values that other ranks keep (ShardLevel::full).
  void release(int unit);
  /// What kernels read: the copy where there is one, else the master (of a matrix in bf16: as f32_as_bf16).
  Tensor compute(int index) const;
  bool has_copy(int index) const;
  /// Memory that is there all the time.
  int64_t bytes() const;
  /// What of a unit comes and goes (ShardLevel::full).
  int64_t transient_bytes(int unit) const;
  /// What is here of that at most: the largest sum over three neighbouring parts of the depth, the one at work, the last one and
  /// the next. In a pipeline: WeightGatherer::plan().
  int64_t transient_bytes() const;

  /// Is told before an op reads a compute value. Must outlive the set, or be taken back.
  void set_keeper(ParameterGatherer* gatherer) { gatherer_ = gatherer; }
  ParameterGatherer* gatherer() const { return gatherer_; }

 private:
  const ParameterTable& table_;
  Placement placement_;
  Precision precision_;
  FlatLayout layout_;
  Buffer masters_, copies_;  ///< a copy lies at its master's place, in elements
  ParameterGatherer* gatherer_ = nullptr;

  bool travels_as_copy(const FlatBucket& unit) const;
};

/// Gradients of the trainable parameters; what is frozen has no memory and an empty tensor.
class GradientBuffer final : public GradientSink {
 public:
  GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype,
                 Backing backing = Backing::memory);
  /// Forgets all written bits; memory is not touched (the first contribution overwrites).
  void begin_step();
  /// Zeroes what nobody wrote and returns the names; call before the optimizer.
  std::vector<std::string> finish_step();
  /// What the optimizer reads. Where all is shared out, this rank's share has values only.
  Tensor gradient(int index) const;
  bool written(int index) const { return written_[static_cast<size_t>(index)]; }
  /// Memory that is there all the time.
  int64_t bytes() const;
  /// What comes and goes (ShardLevel::full): the largest part of the depth, of the one above it the unit that travels last, which is
  /// a layer's vectors, what several parts contribute to, and what tensor ranks sum at the end. `split`: weight gradients follow at the end of a stage, and until then
  /// its vectors have parts of their sums.
  int64_t transient_bytes(bool split = false) const;
  /// What was there of it at once, at most, in this step.
  int64_t most_staged() const { return most_staged_; }

  const FlatLayout& layout() const { return layout_; }
  ShardLevel level() const { return level_; }
  /// A unit with its padding, as it is summed over ranks: complete, with zeros where nobody wrote.
  Tensor unit(int unit);
  /// What the rank keeps of a unit's sum: under ShardLevel::full its share.
  Tensor kept(int unit) const;
  /// Under ShardLevel::full: the unit's sum over ranks has come to this rank's share; adds it to the step's and gives the
  /// rest of its memory back.
  void absorb(int unit);

  bool wants(int parameter) override { return table_[parameter].trainable; }
  GradSlot slot(int parameter) override;
  void finished(int parameter) override;
  /// Called when the last contribution of a tape to a parameter ran: the event that makes a bucket ready.
  std::function<void(int)> on_finished;

 private:
  bool stages() const { return level_ == ShardLevel::full; }
  Tensor range(const Buffer& memory, int64_t begin, int64_t end) const;
  void stage(int unit);

  const ParameterTable& table_;
  DType dtype_;
  ShardLevel level_;
  FlatLayout layout_;
  Buffer memory_;
  Buffer staging_;             ///< ShardLevel::full: contributions of the units that are being written
  std::vector<bool> written_;  ///< by parameter: in this step
  std::vector<bool>
      zeroed_;  ///< by parameter: unit() gave zeros for it; since then it may have sums of others
  std::vector<bool> staged_;    ///< by parameter: since its unit was absorbed
  std::vector<bool> absorbed_;  ///< by unit: the step's sum has begun
  std::vector<bool> here_;      ///< by unit: it takes memory in staging_
  int64_t staged_bytes_ = 0, most_staged_ = 0;
};

}  // namespace ingot
