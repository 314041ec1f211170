// Weight sets and gradients: the memory behind a parameter table, in flat buffers with named views.
//
// A WeightSet holds masters (fp32, or f64 for parity runs; those of operands in bf16 by choice). In bf16,
// products read the masters rounded to bf16 (kRoundedWeight), so memory is that of fp32. Only sharded
// masters, masters that are being packed, and those on a GPU (round_on_gpu()) have bf16 copies of every
// matrix. Vectors, and matrices whose spec says full_precision, are always used in the type of the masters.
// Policy, reference, teacher and average models are weight sets over one table. Gradients are sums over
// tokens, with a written bit per parameter and step.
//
// Where ranks shard the weights (Placement::sharding), every tensor keeps its address, but only this rank's
// shards always have memory; the rest of a bucket gets memory when it is gathered and loses it when it is
// resharded. Not thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nn/flat_layout.h"
#include "tape/tape.h"
#include "tensor/buffer.h"

namespace ingot {

/// Types of a model's execution. compute: products' operands and sublayer outputs; stream: residual stream,
/// vectors, statistics.
struct Precision {
  DType compute = DType::f32;
  DType stream = DType::f32;
  /// Masters of products' operands and embeddings are bf16: what products read, with no more digits behind
  /// it. Not where ranks shard weights.
  bool bf16_masters = false;
  static Precision f32() { return {DType::f32, DType::f32}; }
  static Precision bf16() { return {DType::bf16, DType::f32}; }
  static Precision f64() { return {DType::f64, DType::f64}; }
};

class WeightSet {
 public:
  /// Allocates zeroed memory. `table` must outlive the set. `device`: where the masters may move, if ranks do
  /// not shard them.
  WeightSet(const ParameterTable& table, const Placement& placement, const Precision& precision,
            Backing backing = Backing::memory, DeviceKind device = DeviceKind::cpu);
  /// From now on tensors are the device's, where the set has one, or those of the host (at first).
  void use_device(bool on) { in_use_on_device_ = on && masters_.device() != DeviceKind::cpu; }
  /// Where the masters are on a GPU and products read them rounded: copies of them there, which products read
  /// as they are, in place of rounding them each time, until changed(). Once before the passes of each step,
  /// by a thread whose kernels run there. Error: out of memory.
  void round_on_gpu();

  void initialize(uint64_t seed);
  /// Writes the compute copies from the masters (all of them, or one).
  void refresh_compute();
  void refresh_compute(int index);
  /// Call when every rank has written all masters of a bucket: makes the copies and frees what this rank need
  /// not keep.
  void masters_written(int bucket);

  const ParameterTable& table() const { return table_; }
  const Placement& placement() const { return placement_; }
  const Precision& precision() const { return precision_; }
  int size() const { return table_.size(); }
  Tensor master(int index) const;
  const FlatLayout& layout() const { return layout_; }
  /// The flat tensor of a bucket, with padding, that ranks all-gather: the copies where all of its tensors
  /// have them, else the masters.
  Tensor gather_tensor(int bucket) const;
  /// After the all-gather of gather_tensor(): makes the copies that were not gathered themselves.
  void complete_gather(int bucket);
  /// ShardLevel::full: frees the compute values of a bucket that other ranks keep.
  void reshard(int bucket);
  /// What kernels read: the copy where there is one, else the master; of a matrix in bf16 as kRoundedWeight.
  Tensor compute(int index) const;
  /// Gives the compute value a format (packed panels), which must outlive the set.
  void set_format(int index, const WeightFormat* format) {
    formats_[static_cast<size_t>(index)] = format, changed();
  }
  bool has_copy(int index) const;
  /// Bytes that are allocated all the time.
  int64_t bytes() const;
  /// Bytes of a bucket that are allocated only while it is gathered (ShardLevel::full).
  int64_t transient_bytes(int bucket) const;
  /// Peak of transient_bytes without a pipeline: the largest sum over three neighbouring layer groups (the
  /// current one, the previous one and the prefetched one). In a pipeline: WeightGatherer::plan().
  int64_t transient_bytes() const;

  /// Grows whenever the weights may have changed: caches of what they computed are valid while it stays.
  /// Whoever writes masters through master() calls changed().
  uint64_t version() const { return version_; }
  void changed() { ++version_; }

  /// `gatherer` is called before an op reads a compute value. It must outlive the set, or be reset to
  /// nullptr.
  void set_gatherer(ParameterGatherer* gatherer) { gatherer_ = gatherer; }
  ParameterGatherer* gatherer() const { return gatherer_; }

 private:
  const ParameterTable& table_;
  Placement placement_;
  Precision precision_;
  FlatLayout layout_;
  /// A copy lies at the offset of its master, counted in elements.
  Buffer masters_, copies_;
  std::vector<const WeightFormat*> formats_;  ///< by parameter, see set_format()
  ParameterGatherer* gatherer_ = nullptr;
  uint64_t version_ = 0;
  bool in_use_on_device_ = false;
  std::shared_ptr<void> rounded_;  ///< on the device; a copy lies as in copies_
  uint64_t rounded_version_ = 0;   ///< whose values they are

  DType master_type(int index) const;
  bool gathers_copies(const FlatBucket& bucket) const;
};

/// Gradients of the trainable parameters. Frozen parameters have no memory and an empty tensor.
///
/// Under ShardLevel::full the buffer keeps only this rank's shards. Contributions go to a staging buffer,
/// whose memory a bucket takes when it is first written and frees when its reduced shard is accumulated. So
/// they do where gradients are stored in bf16: contributions of a tape and sums over ranks are in `dtype`,
/// and each sum that is kept is rounded once.
class GradientBuffer final : public GradientSink {
 public:
  GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype,
                 Backing backing = Backing::memory, DeviceKind device = DeviceKind::cpu);
  /// Stored as `stored`: dtype, or bf16 for fp32 sums. The latter needs a GradientReducer, and buckets that
  /// are layer groups to save memory; not for ShardLevel::optimizer.
  /// `device`: where they may move, if there is no staging.
  GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype, DType stored,
                 Backing backing, DeviceKind device = DeviceKind::cpu);
  /// As WeightSet::use_device().
  void use_device(bool on) { in_use_on_device_ = on && memory_.device() != DeviceKind::cpu; }
  /// Clears all written bits; memory is not touched (the first contribution overwrites).
  void begin_step();
  /// Zeroes the gradients that nobody wrote and returns their names; call before the optimizer.
  std::vector<std::string> finish_step();
  /// What the optimizer reads, as it is stored. Under ShardLevel::full only this rank's shard has values.
  Tensor gradient(int index) const;
  bool written(int index) const { return written_[static_cast<size_t>(index)]; }
  /// Bytes that are allocated all the time.
  int64_t bytes() const;
  /// Bytes of staging at most, without a pipeline: the buckets of the largest layer group,
  /// the bucket of the layer group above it that is reduced last, and the buckets that are reduced at the end
  /// of the step. `split`: weight gradients run at the end of a stage, so vectors stay staged until then.
  int64_t transient_bytes(bool split = false) const;
  /// Peak bytes of staging in this step.
  int64_t peak_staged_bytes() const { return peak_staged_bytes_; }

  const FlatLayout& layout() const { return layout_; }
  ShardLevel level() const { return level_; }
  /// Sums of each tape are reduced and kept by themselves.
  bool uses_staging() const { return level_ == ShardLevel::full || stored_ != dtype_; }
  /// A bucket with its padding, ready to be summed over ranks: zeros where nobody wrote.
  Tensor bucket(int index);
  /// Bytes [begin, end) of the flat buffer, which hold these parameters, ready to be summed likewise; not
  /// under ShardLevel::full.
  Tensor part(std::span<const int> parameters, int64_t begin, int64_t end);
  /// The part of a bucket that keeps the sum over ranks: with staging this rank's shard, else all of it.
  Tensor reduced(int bucket) const;
  /// Adds the reduced shard of a staged bucket to the step's sum and frees its staging memory.
  void accumulate_shard(int bucket);

  bool wants(int parameter) override { return table_[parameter].trainable; }
  GradSlot slot(int parameter) override;
  void finished(int parameter) override;
  /// Called when the last contribution of a tape to a parameter ran: its bucket may be complete.
  std::function<void(int)> on_finished;

 private:
  /// Of the buffer, from this byte on, where it is used.
  Tensor at(const Buffer& memory, int64_t byte, const Shape& shape, DType dtype) const;
  Tensor kept(int64_t begin, int64_t end) const;
  Tensor range(const Buffer& memory, int64_t begin, int64_t end) const;
  void zero_unwritten(const Buffer& memory, std::span<const int> parameters);
  void begin_staging(int bucket);

  const ParameterTable& table_;
  DType dtype_, stored_;
  ShardLevel level_;
  FlatLayout layout_;
  Buffer memory_;
  Buffer staging_;
  /// By parameter: written in this step; zeroed by bucket() in this step (it may have sums of other ranks
  /// since); written since its bucket was last accumulated.
  std::vector<bool> written_, zeroed_, staged_;
  /// By bucket: the step's sum has begun; it has memory in staging_.
  std::vector<bool> accumulated_, has_staging_;
  int64_t staged_bytes_ = 0, peak_staged_bytes_ = 0;
  bool in_use_on_device_ = false;
};

}  // namespace ingot
