// See weights.h.
#include "nn/weights.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/parallel.h"

namespace ingot {
namespace {

/// Only what products (and the embedding) read as a matrix is read in the compute type; vectors stay in the stream's.
bool is_operand(const ParameterSpec& spec) {
  return spec.shape.rank() >= 2 && !(spec.role == ParamRole::conv && spec.shape.rank() == 2);
}

}  // namespace

WeightSet::WeightSet(const ParameterTable& table, const Placement& placement, const Precision& precision,
                     Backing backing)
    : table_(table),
      placement_(placement),
      precision_(precision),
      layout_(flat_layout(table, placement, precision.stream)) {
  if (backing == Backing::memory && placement.sharing.level != ShardLevel::none) backing = Backing::sparse;
  masters_ = Buffer(layout_.bytes, backing);
  if (precision.compute == precision.stream ||
      (placement.sharing.level == ShardLevel::none && backing != Backing::sparse))
    return;
  copies_ = Buffer(layout_.bytes / size_of(precision.stream) * size_of(precision.compute), backing);
}

bool WeightSet::has_copy(int index) const {
  return copies_.data() != nullptr && is_operand(table_[index]) && holds(placement_, table_[index]);
}

Tensor WeightSet::master(int index) const {
  const auto i = static_cast<size_t>(index);
  return Tensor(static_cast<char*>(masters_.data()) + layout_.offsets[i], layout_.shapes[i],
                precision_.stream);
}

Tensor WeightSet::compute(int index) const {
  if (!has_copy(index)) {
    Tensor master = this->master(index);
    if (precision_.compute == DType::bf16 && is_operand(table_[index]))
      master.meta.dtype = DType::f32_as_bf16;
    return master;
  }
  const auto i = static_cast<size_t>(index);
  const int64_t offset = layout_.offsets[i] / size_of(precision_.stream) * size_of(precision_.compute);
  return Tensor(static_cast<char*>(copies_.data()) + offset, layout_.shapes[i], precision_.compute);
}

bool WeightSet::travels_as_copy(const FlatBucket& unit) const {
  return copies_.data() != nullptr && std::all_of(unit.parameters.begin(), unit.parameters.end(),
                                                  [&](int i) { return is_operand(table_[i]); });
}

Tensor WeightSet::travelling(int unit) const {
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  const int64_t begin = u.begin / size_of(precision_.stream),
                count = (u.end - u.begin) / size_of(precision_.stream);
  const bool copy = travels_as_copy(u);
  const DType dtype = copy ? precision_.compute : precision_.stream;
  return Tensor(static_cast<char*>((copy ? copies_ : masters_).data()) + begin * size_of(dtype), {count},
                dtype);
}

void WeightSet::arrived(int unit) {
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  if (travels_as_copy(u)) return;
  for (const int i : u.parameters) refresh_compute(i);
}

namespace {

/// Gives back whole pages; what lies on one with something that stays becomes NaN, so that reading what has gone shows.
void give_back(Buffer& memory, int64_t begin, int64_t end) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = std::min(end, (begin + page - 1) / page * page),
                last = std::max(first, end / page * page);
  char* data = static_cast<char*>(memory.data());
  std::memset(data + begin, 0xff, static_cast<size_t>(first - begin));
  std::memset(data + last, 0xff, static_cast<size_t>(end - last));
  memory.discard(begin, end);
}

/// Gives back what lies in a unit beside its own share. `scale`: bytes of an element here, of those there.
void keep_share(Buffer& memory, const FlatBucket& u, int64_t here, int64_t there) {
  if (memory.data() == nullptr) return;
  give_back(memory, u.begin / there * here, u.own_begin() / there * here);
  give_back(memory, u.own_end() / there * here, u.end / there * here);
}

}  // namespace

void WeightSet::filled(int unit) {
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  for (const int i : u.parameters) refresh_compute(i);
  const int64_t size = size_of(precision_.stream);
  if (placement_.sharing.level != ShardLevel::none && travels_as_copy(u)) keep_share(masters_, u, size, size);
  release(unit);
}

void WeightSet::release(int unit) {
  if (placement_.sharing.level != ShardLevel::full) return;
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  const int64_t size = size_of(precision_.stream);
  keep_share(masters_, u, size, size);
  keep_share(copies_, u, size_of(precision_.compute), size);
}

int64_t WeightSet::bytes() const {
  const ShardLevel level = placement_.sharing.level;
  if (level == ShardLevel::none) return masters_.bytes() + copies_.bytes();
  int64_t bytes = 0;
  for (const FlatBucket& u : layout_.units) {
    const int64_t whole = u.end - u.begin, share = u.share();
    bytes += level == ShardLevel::full || travels_as_copy(u) ? share : whole;
    if (copies_.data() != nullptr)
      bytes += (level == ShardLevel::full ? share : whole) / size_of(precision_.stream) *
               size_of(precision_.compute);
  }
  return bytes;
}

int64_t WeightSet::transient_bytes(int unit) const {
  if (placement_.sharing.level != ShardLevel::full) return 0;
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  const int64_t others = u.end - u.begin - u.share(), size = size_of(precision_.stream);
  const int64_t copies = copies_.data() != nullptr ? others / size * size_of(precision_.compute) : 0;
  return copies + (travels_as_copy(u) ? 0 : others);
}

int64_t WeightSet::transient_bytes() const {
  std::map<int64_t, int64_t> parts;
  for (size_t u = 0; u < layout_.units.size(); ++u)
    if (const FlatBucket& unit = layout_.units[u]; unit.end > unit.begin)
      parts[unit.part] += transient_bytes(static_cast<int>(u));
  int64_t largest = 0, before = 0, last = 0;
  for (const auto& [part, bytes] : parts) {
    largest = std::max(largest, before + last + bytes);
    before = last;
    last = bytes;
  }
  return largest;
}

void WeightSet::initialize(uint64_t seed) {
  for (size_t u = 0; u < layout_.units.size(); ++u) {
    for (const int i : layout_.units[u].parameters) ingot::initialize(table_[i], placement_, seed, master(i));
    filled(static_cast<int>(u));
  }
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

GradientBuffer::GradientBuffer(const ParameterTable& table, const Placement& placement, DType dtype,
                               Backing backing)
    : table_(table),
      dtype_(dtype),
      level_(placement.sharing.level),
      layout_(flat_layout(table, placement, dtype, true)),
      written_(static_cast<size_t>(table.size())),
      zeroed_(written_),
      staged_(written_),
      absorbed_(layout_.units.size()),
      here_(absorbed_) {
  if (stages() && backing == Backing::memory) backing = Backing::sparse;
  memory_ = Buffer(layout_.bytes, backing);
  if (stages()) staging_ = Buffer(layout_.bytes, backing);
}

void GradientBuffer::begin_step() {
  written_.assign(written_.size(), false);
  zeroed_.assign(zeroed_.size(), false);
  staged_.assign(staged_.size(), false);
  absorbed_.assign(absorbed_.size(), false);
  here_.assign(here_.size(), false);
  staged_bytes_ = most_staged_ = 0;
}

std::vector<std::string> GradientBuffer::finish_step() {
  std::vector<std::string> names;
  for (int i = 0; i < table_.size(); ++i) {
    const Tensor g = gradient(i);
    if (written(i) || g.numel() == 0) continue;
    if (!zeroed_[static_cast<size_t>(i)]) std::memset(g.data, 0, static_cast<size_t>(g.bytes()));
    names.push_back(table_[i].name);
  }
  return names;
}

Tensor GradientBuffer::range(const Buffer& memory, int64_t begin, int64_t end) const {
  return Tensor(static_cast<char*>(memory.data()) + begin, {(end - begin) / size_of(dtype_)}, dtype_);
}

Tensor GradientBuffer::gradient(int index) const {
  const auto i = static_cast<size_t>(index);
  return Tensor(static_cast<char*>(memory_.data()) + layout_.offsets[i], layout_.shapes[i], dtype_);
}

Tensor GradientBuffer::kept(int unit) const {
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  return stages() ? range(memory_, u.own_begin(), u.own_end()) : range(memory_, u.begin, u.end);
}

int64_t GradientBuffer::bytes() const {
  if (!stages()) return memory_.bytes();
  int64_t bytes = 0;
  for (const FlatBucket& u : layout_.units) bytes += u.share();
  return bytes;
}

int64_t GradientBuffer::transient_bytes(bool split) const {
  if (!stages()) return 0;
  struct Part {
    int64_t all = 0, vectors = 0, others = 0;  ///< its units together, and the largest ones
  };
  std::map<int64_t, Part> parts;
  int64_t waiting = 0;
  for (const FlatBucket& u : layout_.units) {
    const int64_t bytes = u.end - u.begin;
    const bool vectors = u.group == FlatGroup::vectors;
    const bool early = std::any_of(u.parameters.begin(), u.parameters.end(),
                                   [&](int i) { return table_[i].parts.size() > 1; });
    if (u.summed || early || (split && vectors)) {
      waiting += bytes;
      continue;
    }
    Part& part = parts[u.part];
    part.all += bytes;
    (vectors ? part.vectors : part.others) = std::max(vectors ? part.vectors : part.others, bytes);
  }
  int64_t largest = 0, travelling = 0;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    largest = std::max(largest, part->second.all + travelling);
    travelling = part->second.vectors > 0 ? part->second.vectors : part->second.others;
  }
  return largest + waiting;
}

void GradientBuffer::stage(int unit) {
  const auto u = static_cast<size_t>(unit);
  if (here_[u]) return;
  here_[u] = true;
  staged_bytes_ += layout_.units[u].end - layout_.units[u].begin;
  most_staged_ = std::max(most_staged_, staged_bytes_);
}

GradSlot GradientBuffer::slot(int parameter) {
  const auto i = static_cast<size_t>(parameter);
  std::vector<bool>& begun = stages() ? staged_ : written_;
  const bool accumulate = begun[i];
  begun[i] = written_[i] = true;
  if (stages()) stage(layout_.bucket_of[i]);
  const Buffer& memory = stages() ? staging_ : memory_;
  return {Tensor(static_cast<char*>(memory.data()) + layout_.offsets[i], layout_.shapes[i], dtype_),
          accumulate};
}

void GradientBuffer::finished(int parameter) {
  if (on_finished) on_finished(parameter);
}

Tensor GradientBuffer::unit(int unit) {
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  const Buffer& memory = stages() ? staging_ : memory_;
  if (stages()) stage(unit);
  for (const int p : u.parameters) {
    const auto i = static_cast<size_t>(p);
    if ((stages() ? staged_ : written_)[i]) continue;
    std::memset(static_cast<char*>(memory.data()) + layout_.offsets[i], 0,
                static_cast<size_t>(layout_.shapes[i].numel() * size_of(dtype_)));
    zeroed_[i] = true;
  }
  return range(memory, u.begin, u.end);
}

namespace {

template <class T>
void add(const T* from, T* to, int64_t count) {
  parallel_for(count, 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] += from[i];
  });
}

}  // namespace

void GradientBuffer::absorb(int unit) {
  INGOT_CHECK(stages());
  const FlatBucket& u = layout_.units[static_cast<size_t>(unit)];
  const Tensor from = range(staging_, u.own_begin(), u.own_end()),
               to = range(memory_, u.own_begin(), u.own_end());
  if (!absorbed_[static_cast<size_t>(unit)]) {
    std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes()));
  } else {
    dtype_ == DType::f64 ? add(from.as<double>(), to.as<double>(), to.numel())
                         : add(from.as<float>(), to.as<float>(), to.numel());
  }
  absorbed_[static_cast<size_t>(unit)] = true;
  for (const int p : u.parameters) staged_[static_cast<size_t>(p)] = false;
  here_[static_cast<size_t>(unit)] = false;
  staged_bytes_ -= u.end - u.begin;
  staging_.discard(u.begin, u.end);
}

}  // namespace ingot
