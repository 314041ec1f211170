// See parameter.h.
#include "nn/parameter.h"

#include <algorithm>
#include <cmath>

#include "base/glob.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/philox.h"

namespace ingot {
namespace {

struct Cut {
  int64_t global_begin, local_begin, extent;  ///< along the cut dimension
};

/// The ranges of the rule's dimension that belong to a rank.
std::vector<Cut> cuts_of(const ParameterSpec& spec, const ShardRule& rule, const Placement& placement) {
  const int64_t whole = spec.shape[rule.dim];
  const int size = placement.size(rule.axis), rank = placement.rank(rule.axis);
  if (rule.uneven) {
    const int64_t begin = uneven_begin(whole, rank, size);
    return {{begin, 0, uneven_begin(whole, rank + 1, size) - begin}};
  }
  const std::vector<int64_t> blocks = rule.blocks.empty() ? std::vector<int64_t>{whole} : rule.blocks;
  std::vector<Cut> cuts;
  int64_t global = 0, local = 0;
  for (const int64_t block : blocks) {
    if (block % size != 0)
      throw Error(
          fmt::format("parameter '{}' {} cannot be cut into {} parts along dimension {}: a block has {} rows",
                      spec.name, spec.shape.str(), size, rule.dim, block),
          rule.axis == ShardAxis::tensor
              ? "the number of tensor ranks must divide heads, kv_heads and the MLP's width"
              : "the ranks must divide the number of experts, or their width");
    const int64_t part = block / size;
    cuts.push_back({global + rank * part, local, part});
    global += block;
    local += part;
  }
  INGOT_CHECK(global == whole, "blocks of '{}' cover {} of {}", spec.name, global, whole);
  return cuts;
}

/// Replaces the pieces by their parts under one rule.
void cut(const ParameterSpec& spec, const ShardRule& rule, const Placement& placement,
         std::vector<ParameterPiece>& pieces) {
  if (placement.size(rule.axis) == 1) return;
  const auto d = static_cast<size_t>(rule.dim);
  std::vector<ParameterPiece> parts;
  for (const ParameterPiece& whole : pieces)
    for (const Cut& c : cuts_of(spec, rule, placement)) {
      ParameterPiece p = whole;
      p.local_offset[d] = c.local_begin;
      p.global_offset[d] = c.global_begin;
      p.extent[d] = c.extent;
      parts.push_back(std::move(p));
    }
  pieces = std::move(parts);
}

/// A normal number within 3 standard deviations: the first such of streams "name", "name#1", "name#2", ...
double truncated_normal(const Random& random, const std::string& name, uint64_t seed, uint64_t index) {
  double x = random.normal(index);
  for (int attempt = 1; std::abs(x) > 3; ++attempt)
    x = Random(seed, RandomPurpose::init, hash64(fmt::format("{}#{}", name, attempt))).normal(index);
  return x;
}

}  // namespace

std::string layer_prefix(int64_t layer) {
  return fmt::format("layers.{}.", layer);
}

int ParameterTable::add(ParameterSpec spec) {
  INGOT_CHECK(find(spec.name) < 0, "parameter '{}' exists already", spec.name);
  if (spec.layer_groups.empty()) spec.layer_groups = {layer_group_};
  elements_ += spec.shape.numel();
  if (elements_ > Shape::kMostElements)
    throw Error(fmt::format("with '{}' {} the model has more than {:g} parameters", spec.name,
                            spec.shape.str(), static_cast<double>(Shape::kMostElements)),
                "check the sizes in [model]: width, hidden, layers, vocab, moe.experts, moe.hidden");
  index_.emplace(spec.name, size());
  specs_.push_back(std::move(spec));
  return size() - 1;
}

int ParameterTable::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? -1 : it->second;
}

void ParameterTable::freeze(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool found = false;
    std::vector<std::string> names;
    for (ParameterSpec& spec : specs_) {
      names.push_back(spec.name);
      if (!glob_match(pattern, spec.name)) continue;
      spec.trainable = false;
      found = true;
    }
    if (!found)
      throw Error(fmt::format("the pattern '{}' of frozen parameters matches none of {}", pattern, size()),
                  "nearest names: " + nearest_to_pattern(pattern, names));
  }
}

int64_t ParameterTable::trainable() const {
  int64_t n = 0;
  for (const ParameterSpec& s : specs_) n += s.trainable ? s.shape.numel() : 0;
  return n;
}

int64_t ParameterTable::total() const {
  int64_t n = 0;
  for (const auto& s : specs_) n += s.shape.numel();
  return n;
}

int64_t ParameterTable::total(ParamRole role) const {
  int64_t n = 0;
  for (const auto& s : specs_)
    if (s.role == role) n += s.shape.numel();
  return n;
}

bool summed_over_tensor_ranks(const Placement& placement, const ParameterSpec& spec) {
  return placement.tensor_size > 1 && spec.shard.axis == ShardAxis::none &&
         (placement.sequence_parallel || spec.tensor_gradient == TensorGradient::partial);
}

bool holds_layer_group(const Placement& placement, int64_t layer_group) {
  return placement.layer_groups.empty() ||
         std::find(placement.layer_groups.begin(), placement.layer_groups.end(), layer_group) !=
             placement.layer_groups.end();
}

bool holds(const Placement& placement, const ParameterSpec& spec) {
  return placement.layer_groups.empty() ||
         std::any_of(spec.layer_groups.begin(), spec.layer_groups.end(),
                     [&](int64_t layer_group) { return holds_layer_group(placement, layer_group); });
}

Shape local_shape(const ParameterSpec& spec, const Placement& placement) {
  if (!holds(placement, spec)) return {0};
  Shape shape;
  for (int d = 0; d < spec.shape.rank(); ++d) {
    int64_t extent = spec.shape[d];
    for (const ShardRule* rule : {&spec.shard, &spec.width_shard}) {
      if (placement.size(rule->axis) == 1 || rule->dim != d) continue;
      extent = 0;
      for (const Cut& c : cuts_of(spec, *rule, placement)) extent += c.extent;
    }
    shape.push_back(extent);
  }
  return shape;
}

std::vector<int64_t> local_row_splits(const ParameterSpec& spec, const Placement& placement) {
  std::vector<int64_t> rows = spec.row_splits;
  const int64_t size = placement.size(spec.shard.axis);
  if (size == 1 || spec.shard.dim != spec.shape.rank() - 2) return rows;
  if (!rows.empty() && rows != spec.shard.blocks) return {};
  for (int64_t& r : rows) {
    INGOT_CHECK(r % size == 0, "'{}': a block of {} rows over {} ranks", spec.name, r, size);
    r /= size;
  }
  return rows;
}

std::vector<ParameterPiece> pieces_of(const ParameterSpec& spec, const Placement& placement) {
  if (!holds(placement, spec)) return {};
  const auto rank = static_cast<size_t>(spec.shape.rank());
  ParameterPiece whole{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, 0), {}};
  for (int d = 0; d < spec.shape.rank(); ++d) whole.extent.push_back(spec.shape[d]);
  std::vector<ParameterPiece> pieces{whole};
  cut(spec, spec.shard, placement, pieces);
  cut(spec, spec.width_shard, placement, pieces);
  return pieces;
}

void initialize(const ParameterSpec& spec, const Placement& placement, uint64_t seed, const Tensor& local) {
  INGOT_CHECK(local.shape() == local_shape(spec, placement) && local.shape().rank() > 0, "'{}' is {}",
              spec.name, local.shape().str());
  if (!holds(placement, spec)) return;
  const Random random(seed, RandomPurpose::init, hash64(spec.name));
  const auto value = [&](int64_t global_index) {
    const auto i = static_cast<uint64_t>(global_index);
    switch (spec.init.kind) {
      case Init::Kind::constant:
        return spec.init.value;
      case Init::Kind::normal:
        return spec.init.value * random.normal(i);
      case Init::Kind::truncated:
        return spec.init.value * truncated_normal(random, spec.name, seed, i);
      case Init::Kind::uniform:
        return spec.init.value * (2.0 * static_cast<double>(random.uniform(i)) - 1.0);
    }
    return 0.0;
  };
  const auto write = [&](int64_t to, int64_t from) {
    const auto v = static_cast<float>(value(from));
    if (local.dtype() == DType::f64)
      local.as<double>()[to] = v;
    else if (local.dtype() == DType::bf16)
      local.as<bf16>()[to] = to_bf16(v);
    else
      local.as<float>()[to] = v;
  };
  for (const ParameterPiece& piece : pieces_of(spec, placement)) {
    const size_t last = piece.extent.size() - 1;  // elements of the last dimension lie together
    int64_t rows = 1;
    for (size_t d = 0; d < last; ++d) rows *= piece.extent[d];
    parallel_for(rows, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t rest = row, to = piece.local_offset[last], from = piece.global_offset[last];
        int64_t to_stride = local.shape()[-1], from_stride = spec.shape[-1];
        for (size_t d = last; d-- > 0;) {
          const int64_t at = rest % piece.extent[d];
          rest /= piece.extent[d];
          to += (piece.local_offset[d] + at) * to_stride;
          from += (piece.global_offset[d] + at) * from_stride;
          to_stride *= local.shape()[static_cast<int>(d)];
          from_stride *= spec.shape[static_cast<int>(d)];
        }
        for (int64_t i = 0; i < piece.extent[last]; ++i) write(to + i, from + i);
      }
    });
  }
}

}  // namespace ingot
