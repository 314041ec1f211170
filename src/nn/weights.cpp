// See weights.h.
#include "nn/weights.h"

#include <cstring>

#include "base/parallel.h"

namespace ingot {
namespace {

/// Only what products (and the embedding) read as a matrix gets a compute copy; vectors stay in the stream's type.
bool wants_copy(const ParameterSpec& spec) {
  return spec.shape.rank() >= 2 && !(spec.role == ParamRole::conv && spec.shape.rank() == 2);
}

}  // namespace

FlatGroup flat_group(const ParameterSpec& spec) {
  INGOT_CHECK((spec.role == ParamRole::expert) == (spec.shard.axis == ShardAxis::expert), "'{}'", spec.name);
  if (spec.role == ParamRole::expert) return FlatGroup::experts;
  const bool matrix = spec.shape.rank() >= 2 && spec.role != ParamRole::conv && spec.role != ParamRole::embedding;
  return matrix ? FlatGroup::matrices : FlatGroup::vectors;
}

FlatLayout flat_layout(const ParameterTable& table, const Placement& placement, DType dtype, bool trainable_only) {
  FlatLayout layout;
  layout.offsets.assign(static_cast<size_t>(table.size()), 0);
  for (int i = 0; i < table.size(); ++i) 
    layout.shapes.push_back(trainable_only && !table[i].trainable ? Shape{0} : local_shape(table[i], placement));
  const int64_t unit = round_up_block(1) * placement.flat_multiple;
  for (const FlatGroup group : kFlatGroups) {
    for (int i = 0; i < table.size(); ++i) {
      if (flat_group(table[i]) != group) continue;
      layout.offsets[static_cast<size_t>(i)] = layout.bytes;
      layout.bytes += round_up_block(layout.shapes[static_cast<size_t>(i)].numel() * size_of(dtype));
    }
    layout.bytes = (layout.bytes + unit - 1) / unit * unit;
    layout.groups[static_cast<size_t>(group) + 1] = layout.bytes;
  }
  return layout;
}

namespace {

Tensor flat_tensor(const Buffer& memory, const FlatLayout& layout, FlatGroup group, DType dtype) {
  const int64_t begin = layout.groups[static_cast<size_t>(group)], end = layout.groups[static_cast<size_t>(group) + 1];
  return Tensor(static_cast<char*>(memory.data()) + begin, {(end - begin) / size_of(dtype)}, dtype);
}

}  // namespace

WeightSet::WeightSet(const ParameterTable& table, const Placement& placement, const Precision& precision, Backing backing)
    : table_(table), placement_(placement), precision_(precision), layout_(flat_layout(table, placement, precision.stream)),
      copy_offsets_(static_cast<size_t>(table.size()), -1), masters_(layout_.bytes, backing) {
  if (precision.compute == precision.stream) return;
  int64_t bytes = 0;
  for (int i = 0; i < table.size(); ++i) {
    if (!wants_copy(table[i]) || !holds(placement, table[i])) continue;
    copy_offsets_[static_cast<size_t>(i)] = bytes;
    bytes += round_up_block(layout_.shapes[static_cast<size_t>(i)].numel() * size_of(precision.compute));
  }
  copies_ = Buffer(bytes, backing);
}

Tensor WeightSet::master(int index) const {
  const auto i = static_cast<size_t>(index);
  return Tensor(static_cast<char*>(masters_.data()) + layout_.offsets[i], layout_.shapes[i], precision_.stream);
}

Tensor WeightSet::flat_masters(FlatGroup group) const { return flat_tensor(masters_, layout_, group, precision_.stream); }

Tensor WeightSet::compute(int index) const {
  const auto i = static_cast<size_t>(index);
  if (copy_offsets_[i] < 0) return master(index);
  return Tensor(static_cast<char*>(copies_.data()) + copy_offsets_[i], layout_.shapes[i], precision_.compute);
}

void WeightSet::initialize(uint64_t seed) {
  for (int i = 0; i < size(); ++i) ingot::initialize(table_[i], placement_, seed, master(i));
  refresh_compute();
}

void WeightSet::refresh_compute() {
  for (int i = 0; i < size(); ++i) refresh_compute(i);
}

void WeightSet::refresh_compute(int index) {
  if (!has_copy(index)) return;
  INGOT_CHECK(precision_.compute == DType::bf16 && precision_.stream == DType::f32);
  const float* from = master(index).as<float>();
  bf16* to = compute(index).as<bf16>();
  parallel_for(master(index).numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = to_bf16(from[i]);
  });
}

GradientBuffer::GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype, Backing backing)
    : table_(table), dtype_(dtype), layout_(flat_layout(table, placement, dtype, true)), memory_(layout_.bytes, backing),
      written_(static_cast<size_t>(table.size())) {}

void GradientBuffer::begin_step() { written_.assign(written_.size(), false); }

std::vector<std::string> GradientBuffer::finish_step() {
  std::vector<std::string> names;
  for (int i = 0; i < table_.size(); ++i) {
    if (written(i)) continue;
    const Tensor g = gradient(i);
    if (g.numel() > 0) std::memset(g.data, 0, static_cast<size_t>(g.bytes()));
    if (g.numel() > 0) names.push_back(table_[i].name);
  }
  return names;
}

Tensor GradientBuffer::gradient(int index) const {
  const auto i = static_cast<size_t>(index);
  return Tensor(static_cast<char*>(memory_.data()) + layout_.offsets[i], layout_.shapes[i], dtype_);
}

Tensor GradientBuffer::flat(FlatGroup group) const { return flat_tensor(memory_, layout_, group, dtype_); }

GradSlot GradientBuffer::slot(int parameter) {
  const bool accumulate = written_[static_cast<size_t>(parameter)];
  written_[static_cast<size_t>(parameter)] = true;
  return {gradient(parameter), accumulate};
}

void GradientBuffer::finished(int parameter) {
  if (on_finished) on_finished(parameter);
}

}  // namespace ingot
