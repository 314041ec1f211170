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

/// The ranges of the cut dimension that belong to a rank.
std::vector<Cut> cuts_of(const ParameterSpec& spec, const Placement& placement) {
  const int64_t whole = spec.shape[spec.shard.dim];
  const int size = placement.size(spec.shard.axis), rank = placement.rank(spec.shard.axis);
  const std::vector<int64_t> blocks = spec.shard.blocks.empty() ? std::vector<int64_t>{whole} : spec.shard.blocks;
  std::vector<Cut> cuts;
  int64_t global = 0, local = 0;
  for (const int64_t block : blocks) {
    if (block % size != 0)
      fail("parameter '{}' {} cannot be cut into {} parts along dimension {}: a block has {} rows", spec.name,
           spec.shape.str(), size, spec.shard.dim, block);
    const int64_t part = block / size;
    cuts.push_back({global + rank * part, local, part});
    global += block;
    local += part;
  }
  INGOT_CHECK(global == whole, "blocks of '{}' cover {} of {}", spec.name, global, whole);
  return cuts;
}

/// A normal number within 3 standard deviations: the first such of streams "name", "name#1", "name#2", ...
double truncated_normal(const Random& random, const std::string& name, uint64_t seed, uint64_t index) {
  double x = random.normal(index);
  for (int attempt = 1; std::abs(x) > 3; ++attempt)
    x = Random(seed, RandomPurpose::init, hash64(fmt::format("{}#{}", name, attempt))).normal(index);
  return x;
}

bool is_cut(const ParameterSpec& spec, const Placement& p) { return p.size(spec.shard.axis) > 1; }

}  // namespace

int ParameterTable::add(ParameterSpec spec) {
  INGOT_CHECK(find(spec.name) < 0, "parameter '{}' exists already", spec.name);
  if (spec.parts.empty()) spec.parts = {part_};
  specs_.push_back(std::move(spec));
  return size() - 1;
}

int ParameterTable::find(std::string_view name) const {
  for (int i = 0; i < size(); ++i)
    if (specs_[static_cast<size_t>(i)].name == name) return i;
  return -1;
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

bool holds(const Placement& placement, const ParameterSpec& spec) {
  const auto held = [&](int64_t part) {
    return std::find(placement.parts.begin(), placement.parts.end(), part) != placement.parts.end();
  };
  return placement.parts.empty() || std::any_of(spec.parts.begin(), spec.parts.end(), held);
}

Shape local_shape(const ParameterSpec& spec, const Placement& placement) {
  if (!holds(placement, spec)) return {0};
  if (!is_cut(spec, placement)) return spec.shape;
  int64_t extent = 0;
  for (const Cut& c : cuts_of(spec, placement)) extent += c.extent;
  Shape shape;
  for (int d = 0; d < spec.shape.rank(); ++d) shape.push_back(d == spec.shard.dim ? extent : spec.shape[d]);
  return shape;
}

std::vector<ParameterPiece> pieces_of(const ParameterSpec& spec, const Placement& placement) {
  if (!holds(placement, spec)) return {};
  const auto rank = static_cast<size_t>(spec.shape.rank());
  ParameterPiece whole{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, 0), {}};
  for (int d = 0; d < spec.shape.rank(); ++d) whole.extent.push_back(spec.shape[d]);
  if (!is_cut(spec, placement)) return {whole};
  std::vector<ParameterPiece> pieces;
  for (const Cut& c : cuts_of(spec, placement)) {
    ParameterPiece p = whole;
    const auto d = static_cast<size_t>(spec.shard.dim);
    p.local_offset[d] = c.local_begin;
    p.global_offset[d] = c.global_begin;
    p.extent[d] = c.extent;
    pieces.push_back(std::move(p));
  }
  return pieces;
}

void initialize(const ParameterSpec& spec, const Placement& placement, uint64_t seed, const Tensor& local) {
  INGOT_CHECK(local.shape() == local_shape(spec, placement), "'{}' is {}", spec.name, local.shape().str());
  if (!holds(placement, spec)) return;
  const Random random(seed, RandomPurpose::init, hash64(spec.name));
  const std::vector<Cut> cuts =
      is_cut(spec, placement) ? cuts_of(spec, placement) : std::vector<Cut>{{0, 0, spec.shape.rank() ? spec.shape[spec.shard.dim] : 1}};
  // View as [outer, cut dimension, inner].
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < spec.shape.rank(); ++d) {
    if (d < spec.shard.dim) outer *= spec.shape[d];
    if (d > spec.shard.dim) inner *= spec.shape[d];
  }
  const int64_t global_extent = spec.shape.rank() ? spec.shape[spec.shard.dim] : 1;
  const int64_t local_extent = local.shape().rank() ? local.shape()[spec.shard.dim] : 1;
  const auto value = [&](int64_t global_index) {
    const auto i = static_cast<uint64_t>(global_index);
    switch (spec.init.kind) {
      case Init::Kind::constant: return spec.init.value;
      case Init::Kind::normal: return spec.init.value * random.normal(i);
      case Init::Kind::truncated: return spec.init.value * truncated_normal(random, spec.name, seed, i);
      case Init::Kind::uniform: return spec.init.value * (2.0 * static_cast<double>(random.uniform(i)) - 1.0);
    }
    return 0.0;
  };
  for (int64_t o = 0; o < outer; ++o)
    for (const Cut& c : cuts)
      parallel_for(c.extent, 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          for (int64_t j = 0; j < inner; ++j) {
            const double v = value((o * global_extent + c.global_begin + i) * inner + j);
            const int64_t at = (o * local_extent + c.local_begin + i) * inner + j;
            if (local.dtype() == DType::f64) local.as<double>()[at] = static_cast<float>(v);
            else local.as<float>()[at] = static_cast<float>(v);
          }
      });
}

}  // namespace ingot
