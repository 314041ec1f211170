// See weights.h.
#include "nn/weights.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/parallel.h"
#include "device/simd/gpu_array.h"
#include "tensor/host_copy.h"

namespace ingot {
namespace {

/// Products and the embedding read matrices in the compute type; vectors stay in the type of the stream.
bool is_operand(const ParameterSpec& spec) {
  return !spec.full_precision && spec.shape.rank() >= 2 &&
         !(spec.role == ParamRole::conv && spec.shape.rank() == 2);
}

}  // namespace

WeightSet::WeightSet(const ParameterTable& table, const Placement& placement, const Precision& precision,
                     Backing backing, DeviceKind device)
    : table_(table),
      placement_(placement),
      precision_(precision),
      layout_(flat_layout(table, placement,
                          [&](const ParameterSpec& spec) {
                            return precision.bf16_masters && is_operand(spec) ? DType::bf16
                                                                              : precision.stream;
                          })),
      formats_(static_cast<size_t>(table.size())) {
  INGOT_CHECK(!precision.bf16_masters ||
              (placement.sharding.level == ShardLevel::none && precision.compute == DType::bf16));
  if (backing == Backing::memory && placement.sharding.level != ShardLevel::none) backing = Backing::sparse;
  masters_ = Buffer(layout_.bytes, backing, device, "weights");
  if (precision.compute == precision.stream ||
      (placement.sharding.level == ShardLevel::none && backing != Backing::sparse))
    return;
  copies_ = Buffer(layout_.bytes / size_of(precision.stream) * size_of(precision.compute), backing);
}

bool WeightSet::has_copy(int index) const {
  return copies_.data() != nullptr && is_operand(table_[index]) && holds(placement_, table_[index]);
}

DType WeightSet::master_type(int index) const {
  return precision_.bf16_masters && is_operand(table_[index]) ? DType::bf16 : precision_.stream;
}

Tensor WeightSet::master(int index) const {
  const auto i = static_cast<size_t>(index);
  void* const all = in_use_on_device_ ? masters_.on_device() : masters_.data();
  return Tensor(static_cast<char*>(all) + layout_.offsets[i], layout_.shapes[i], master_type(index),
                in_use_on_device_ ? masters_.device() : DeviceKind::cpu);
}

Tensor WeightSet::compute(int index) const {
  const auto i = static_cast<size_t>(index);
  const bool operand = is_operand(table_[index]);
  const DType dtype = operand ? precision_.compute : precision_.stream;
  const int64_t offset = layout_.offsets[i] / size_of(precision_.stream) * size_of(precision_.compute);
  if (operand && in_use_on_device_ && rounded_ != nullptr && rounded_version_ == version_)
    return Tensor(static_cast<char*>(rounded_.get()) + offset, layout_.shapes[i], dtype, masters_.device());
  if (formats_[i] != nullptr) return Tensor(nullptr, {layout_.shapes[i], dtype, formats_[i]});
  if (!has_copy(index)) {
    Tensor t = master(index);
    t.meta = {layout_.shapes[i], dtype, dtype == master_type(index) ? nullptr : &kRoundedWeight};
    return t;
  }
  return Tensor(static_cast<char*>(copies_.data()) + offset, layout_.shapes[i], precision_.compute);
}

void WeightSet::round_on_gpu() {
  if (!in_use_on_device_ || precision_.compute != DType::bf16 || precision_.bf16_masters) return;
  const int64_t count = layout_.bytes / size_of(precision_.stream);
  if (rounded_ == nullptr) {
    const int64_t bytes = count * size_of(precision_.compute);
    Device& device = device_of(masters_.device());
    rounded_ = {device.allocate(bytes), [&device, bytes](void* data) { device.release(data, bytes); }};
  }
  INGOT_GPU_CALL(launch_array_copy)
  ({}, {rounded_.get(), precision_.compute, masters_.on_device(), precision_.stream, count, false});
  rounded_version_ = version_;
}

bool WeightSet::gathers_copies(const FlatBucket& bucket) const {
  return copies_.data() != nullptr && std::all_of(bucket.parameters.begin(), bucket.parameters.end(),
                                                  [&](int i) { return is_operand(table_[i]); });
}

Tensor WeightSet::gather_tensor(int bucket) const {
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(bucket)];
  const int64_t begin = b.begin / size_of(precision_.stream),
                count = (b.end - b.begin) / size_of(precision_.stream);
  const bool copy = gathers_copies(b);
  const DType dtype = copy ? precision_.compute : precision_.stream;
  return Tensor(static_cast<char*>((copy ? copies_ : masters_).data()) + begin * size_of(dtype), {count},
                dtype);
}

void WeightSet::complete_gather(int bucket) {
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(bucket)];
  if (gathers_copies(b)) return;
  for (const int i : b.parameters) refresh_compute(i);
}

namespace {

/// Frees whole pages. Freed values on pages that stay become NaN, so that reading them shows.
void discard_range(Buffer& memory, int64_t begin, int64_t end) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = std::min(end, (begin + page - 1) / page * page),
                last = std::max(first, end / page * page);
  char* data = static_cast<char*>(memory.data());
  std::memset(data + begin, 0xff, static_cast<size_t>(first - begin));
  std::memset(data + last, 0xff, static_cast<size_t>(end - last));
  memory.discard(begin, end);
}

/// Frees the other ranks' shards of a bucket. `size`: bytes of an element of this memory, `layout_size`: of
/// the layout.
void keep_shard(Buffer& memory, const FlatBucket& b, int64_t size, int64_t layout_size) {
  if (memory.data() == nullptr) return;
  discard_range(memory, b.begin / layout_size * size, b.own_begin() / layout_size * size);
  discard_range(memory, b.own_end() / layout_size * size, b.end / layout_size * size);
}

}  // namespace

void WeightSet::masters_written(int bucket) {
  changed();
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(bucket)];
  for (const int i : b.parameters) refresh_compute(i);
  const int64_t size = size_of(precision_.stream);
  if (placement_.sharding.level != ShardLevel::none && gathers_copies(b)) keep_shard(masters_, b, size, size);
  reshard(bucket);
}

void WeightSet::reshard(int bucket) {
  if (placement_.sharding.level != ShardLevel::full) return;
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(bucket)];
  const int64_t size = size_of(precision_.stream);
  keep_shard(masters_, b, size, size);
  keep_shard(copies_, b, size_of(precision_.compute), size);
}

int64_t WeightSet::bytes() const {
  const ShardLevel level = placement_.sharding.level;
  if (level == ShardLevel::none) return masters_.bytes() + copies_.bytes();
  int64_t bytes = 0;
  for (const FlatBucket& b : layout_.buckets) {
    const int64_t whole = b.end - b.begin, shard = b.shard_bytes();
    bytes += level == ShardLevel::full || gathers_copies(b) ? shard : whole;
    if (copies_.data() != nullptr)
      bytes += (level == ShardLevel::full ? shard : whole) / size_of(precision_.stream) *
               size_of(precision_.compute);
  }
  return bytes;
}

int64_t WeightSet::transient_bytes(int bucket) const {
  if (placement_.sharding.level != ShardLevel::full) return 0;
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(bucket)];
  const int64_t others = b.end - b.begin - b.shard_bytes(), size = size_of(precision_.stream);
  const int64_t copies = copies_.data() != nullptr ? others / size * size_of(precision_.compute) : 0;
  return copies + (gathers_copies(b) ? 0 : others);
}

int64_t WeightSet::transient_bytes() const {
  std::map<int64_t, int64_t> by_layer_group;
  for (size_t b = 0; b < layout_.buckets.size(); ++b)
    if (const FlatBucket& bucket = layout_.buckets[b]; bucket.end > bucket.begin)
      by_layer_group[bucket.layer_group] += transient_bytes(static_cast<int>(b));
  int64_t largest = 0, before = 0, last = 0;
  for (const auto& [group, bytes] : by_layer_group) {
    largest = std::max(largest, before + last + bytes);
    before = last;
    last = bytes;
  }
  return largest;
}

void WeightSet::initialize(uint64_t seed) {
  for (size_t u = 0; u < layout_.buckets.size(); ++u) {
    for (const int i : layout_.buckets[u].parameters)
      ingot::initialize(table_[i], placement_, seed, master(i));
    masters_written(static_cast<int>(u));
  }
}

void WeightSet::refresh_compute() {
  changed();
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

GradientBuffer::GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype,
                               Backing backing, DeviceKind device)
    : GradientBuffer(table, placement, dtype, dtype, backing, device) {}

GradientBuffer::GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype,
                               DType stored, Backing backing, DeviceKind device)
    : table_(table),
      dtype_(dtype),
      stored_(stored),
      level_(placement.sharding.level),
      layout_(flat_layout(table, placement, dtype, true)),
      written_(static_cast<size_t>(table.size())),
      zeroed_(written_),
      staged_(written_),
      accumulated_(layout_.buckets.size()),
      has_staging_(accumulated_) {
  INGOT_CHECK(stored == dtype ||
              (stored == DType::bf16 && dtype == DType::f32 && level_ != ShardLevel::optimizer));
  if (uses_staging() && backing == Backing::memory) backing = Backing::sparse;
  memory_ = Buffer(layout_.bytes / size_of(dtype) * size_of(stored), backing,
                   uses_staging() ? DeviceKind::cpu : device, "gradients");
  if (uses_staging()) staging_ = Buffer(layout_.bytes, backing);
}

void GradientBuffer::begin_step() {
  written_.assign(written_.size(), false);
  zeroed_.assign(zeroed_.size(), false);
  staged_.assign(staged_.size(), false);
  accumulated_.assign(accumulated_.size(), false);
  has_staging_.assign(has_staging_.size(), false);
  staged_bytes_ = peak_staged_bytes_ = 0;
}

std::vector<std::string> GradientBuffer::finish_step() {
  std::vector<std::string> names;
  for (int i = 0; i < table_.size(); ++i) {
    const Tensor g = gradient(i);
    if (written(i) || g.numel() == 0) continue;
    if (!zeroed_[static_cast<size_t>(i)]) set_zero(g);
    names.push_back(table_[i].name);
  }
  return names;
}

Tensor GradientBuffer::at(const Buffer& memory, int64_t byte, const Shape& shape, DType dtype) const {
  void* const all = in_use_on_device_ ? memory.on_device() : memory.data();
  return Tensor(static_cast<char*>(all) + byte, shape, dtype,
                in_use_on_device_ ? memory.device() : DeviceKind::cpu);
}

Tensor GradientBuffer::range(const Buffer& memory, int64_t begin, int64_t end) const {
  return at(memory, begin, {(end - begin) / size_of(dtype_)}, dtype_);
}

/// Bytes [begin, end) of the layout, as they are stored.
Tensor GradientBuffer::kept(int64_t begin, int64_t end) const {
  return at(memory_, begin / size_of(dtype_) * size_of(stored_), {(end - begin) / size_of(dtype_)}, stored_);
}

Tensor GradientBuffer::gradient(int index) const {
  const auto i = static_cast<size_t>(index);
  return at(memory_, layout_.offsets[i] / size_of(dtype_) * size_of(stored_), layout_.shapes[i], stored_);
}

Tensor GradientBuffer::reduced(int bucket) const {
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(bucket)];
  return uses_staging() ? kept(b.own_begin(), b.own_end()) : range(memory_, b.begin, b.end);
}

int64_t GradientBuffer::bytes() const {
  if (!uses_staging()) return memory_.bytes();
  int64_t bytes = 0;
  for (const FlatBucket& b : layout_.buckets) bytes += b.shard_bytes() / size_of(dtype_) * size_of(stored_);
  return bytes;
}

int64_t GradientBuffer::transient_bytes(bool split) const {
  if (!uses_staging()) return 0;
  struct GroupBytes {
    int64_t all = 0;                  ///< of the buckets of a layer group together
    int64_t vectors = 0, others = 0;  ///< of its largest bucket of either kind
  };
  std::map<int64_t, GroupBytes> by_layer_group;
  int64_t reduced_at_end = 0;
  for (const FlatBucket& b : layout_.buckets) {
    const int64_t bytes = b.end - b.begin;
    const bool vectors = b.group == FlatGroup::vectors;
    const bool several_groups = std::any_of(b.parameters.begin(), b.parameters.end(),
                                            [&](int i) { return table_[i].layer_groups.size() > 1; });
    if (b.summed || several_groups || (split && vectors)) {
      reduced_at_end += bytes;
      continue;
    }
    GroupBytes& group = by_layer_group[b.layer_group];
    group.all += bytes;
    (vectors ? group.vectors : group.others) = std::max(vectors ? group.vectors : group.others, bytes);
  }
  int64_t largest = 0, in_flight = 0;
  for (auto g = by_layer_group.rbegin(); g != by_layer_group.rend(); ++g) {
    largest = std::max(largest, g->second.all + in_flight);
    in_flight = g->second.vectors > 0 ? g->second.vectors : g->second.others;
  }
  return largest + reduced_at_end;
}

void GradientBuffer::begin_staging(int bucket) {
  const auto u = static_cast<size_t>(bucket);
  if (has_staging_[u]) return;
  has_staging_[u] = true;
  staged_bytes_ += layout_.buckets[u].end - layout_.buckets[u].begin;
  peak_staged_bytes_ = std::max(peak_staged_bytes_, staged_bytes_);
}

GradSlot GradientBuffer::slot(int parameter) {
  const auto i = static_cast<size_t>(parameter);
  std::vector<bool>& begun = uses_staging() ? staged_ : written_;
  const bool accumulate = begun[i];
  begun[i] = written_[i] = true;
  if (uses_staging()) begin_staging(layout_.bucket_of[i]);
  const Buffer& memory = uses_staging() ? staging_ : memory_;
  return {at(memory, layout_.offsets[i], layout_.shapes[i], dtype_), accumulate};
}

void GradientBuffer::finished(int parameter) {
  if (on_finished) on_finished(parameter);
}

Tensor GradientBuffer::bucket(int index) {
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(index)];
  const Buffer& memory = uses_staging() ? staging_ : memory_;
  if (uses_staging()) begin_staging(index);
  zero_unwritten(memory, b.parameters);
  return range(memory, b.begin, b.end);
}

Tensor GradientBuffer::part(std::span<const int> parameters, int64_t begin, int64_t end) {
  INGOT_CHECK(!uses_staging());
  zero_unwritten(memory_, parameters);
  return range(memory_, begin, end);
}

void GradientBuffer::zero_unwritten(const Buffer& memory, std::span<const int> parameters) {
  for (const int p : parameters) {
    const auto i = static_cast<size_t>(p);
    if ((uses_staging() ? staged_ : written_)[i]) continue;
    set_zero(at(memory, layout_.offsets[i], layout_.shapes[i], dtype_));
    zeroed_[i] = true;
  }
}

namespace {

template <class T>
void add(const T* from, T* to, int64_t count) {
  parallel_for(count, 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] += from[i];
  });
}

/// `first`: to has no values yet.
void add_rounded(const float* from, bf16* to, int64_t count, bool first) {
  parallel_for(count, 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = to_bf16(first ? from[i] : to_float(to[i]) + from[i]);
  });
}

}  // namespace

void GradientBuffer::accumulate_shard(int bucket) {
  INGOT_CHECK(uses_staging());
  const FlatBucket& b = layout_.buckets[static_cast<size_t>(bucket)];
  const Tensor from = range(staging_, b.own_begin(), b.own_end()), to = kept(b.own_begin(), b.own_end());
  const bool first = !accumulated_[static_cast<size_t>(bucket)];
  if (stored_ != dtype_) {
    add_rounded(from.as<float>(), to.as<bf16>(), to.numel(), first);
  } else if (first) {
    std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes()));
  } else {
    dtype_ == DType::f64 ? add(from.as<double>(), to.as<double>(), to.numel())
                         : add(from.as<float>(), to.as<float>(), to.numel());
  }
  accumulated_[static_cast<size_t>(bucket)] = true;
  for (const int p : b.parameters) staged_[static_cast<size_t>(p)] = false;
  has_staging_[static_cast<size_t>(bucket)] = false;
  staged_bytes_ -= b.end - b.begin;
  staging_.discard(b.begin, b.end);
}

}  // namespace ingot
