// Weight sets and gradients: the memory behind a parameter table, in flat buffers with named views.
//
// A WeightSet holds masters (fp32, or f64 for parity runs) and, where the compute type is bf16, bf16 copies of every
// matrix that products read; vectors are always used in the master's type. Policy, reference, teacher and average models
// are weight sets over one table. Gradients are sums over tokens in the master's type, with a written bit per parameter
// and step. Not thread-safe.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "nn/parameter.h"
#include "tape/tape.h"

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

/// The groups of a flat buffer, in order: dense matrices, experts, then what element-wise optimizers move.
enum class FlatGroup : uint8_t { matrices, experts, vectors };
constexpr FlatGroup kFlatGroups[] = {FlatGroup::matrices, FlatGroup::experts, FlatGroup::vectors};
FlatGroup flat_group(const ParameterSpec& spec);

/// Offsets of all local tensors in one flat buffer, group by group; inside a group, table order. Each tensor starts on a
/// cache line; padding is zero and stays so under sums.
struct FlatLayout {
  std::vector<Shape> shapes;
  std::vector<int64_t> offsets;  ///< bytes
  std::array<int64_t, 4> groups = {};  ///< bytes: where each begins, and the end
  int64_t bytes = 0;
};
/// `trainable_only`: frozen tensors are empty.
FlatLayout flat_layout(const ParameterTable& table, const Placement& placement, DType dtype, bool trainable_only = false);

class WeightSet {
 public:
  /// Allocates zeroed memory. `table` must outlive the set.
  WeightSet(const ParameterTable& table, const Placement& placement, const Precision& precision,
            Backing backing = Backing::memory);

  void initialize(uint64_t seed);
  /// Writes the compute copies from the masters (all of them, or one).
  void refresh_compute();
  void refresh_compute(int index);

  const ParameterTable& table() const { return table_; }
  const Placement& placement() const { return placement_; }
  const Precision& precision() const { return precision_; }
  int size() const { return table_.size(); }
  Tensor master(int index) const;
  /// The masters of a group with their padding, as one row of numbers.
  Tensor flat_masters(FlatGroup group) const;
  /// What kernels read: the copy where there is one, else the master.
  Tensor compute(int index) const;
  bool has_copy(int index) const { return copy_offsets_[static_cast<size_t>(index)] >= 0; }
  int64_t bytes() const { return masters_.bytes() + copies_.bytes(); }

 private:
  const ParameterTable& table_;
  Placement placement_;
  Precision precision_;
  FlatLayout layout_;
  std::vector<int64_t> copy_offsets_;  ///< -1: no copy
  Buffer masters_, copies_;
};

/// Gradients of the trainable parameters; what is frozen has no memory and an empty tensor.
class GradientBuffer final : public GradientSink {
 public:
  GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype, Backing backing = Backing::memory);
  /// Forgets all written bits; memory is not touched (the first contribution overwrites).
  void begin_step();
  /// Zeroes what nobody wrote and returns the names; call before the optimizer.
  std::vector<std::string> finish_step();
  Tensor gradient(int index) const;
  Tensor flat(FlatGroup group) const;
  bool written(int index) const { return written_[static_cast<size_t>(index)]; }
  int64_t bytes() const { return memory_.bytes(); }

  bool wants(int parameter) override { return table_[parameter].trainable; }
  GradSlot slot(int parameter) override;
  void finished(int parameter) override;
  /// Called when the last contribution of a tape to a parameter ran: the event that makes a bucket ready.
  std::function<void(int)> on_finished;

 private:
  const ParameterTable& table_;
  DType dtype_;
  FlatLayout layout_;
  Buffer memory_;
  std::vector<bool> written_;
};

}  // namespace ingot
