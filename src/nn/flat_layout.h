// Where every tensor of a rank lies in one flat buffer of weights, gradients or optimizer state, and how
// ranks that hold the same tensors shard that buffer: it is divided into buckets, and each bucket into one
// equal range (shard) per rank.
//
// A pure function of the parameter table and the placement, so every rank knows the layout of all. The
// tensors of a bucket are contiguous; each starts on a 128-byte block, and no tensor crosses the end of a
// bucket. Padding is zero and stays zero under sums. Where buckets are layer groups, a parameter that other
// pipeline stages hold too has a bucket of its own, which is sharded alike on all of them.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "nn/parameter.h"

namespace ingot {

/// The tensor groups of a flat buffer, in order: dense matrices, experts, and what element-wise optimizers
/// update.
enum class FlatGroup : uint8_t { matrices, experts, vectors };
constexpr FlatGroup kFlatGroups[] = {FlatGroup::matrices, FlatGroup::experts, FlatGroup::vectors};
FlatGroup flat_group(const ParameterSpec& spec);

/// The tensors that one collective gathers or reduces: a tensor group, some of its bytes, or a layer group
/// (FlatBuckets).
struct FlatBucket {
  FlatGroup group = FlatGroup::matrices;
  /// Gradients are summed over tensor ranks first (summed_over_tensor_ranks).
  bool summed = false;
  /// Bytes in the flat buffer.
  int64_t begin = 0, end = 0;
  /// Size of the shard group, and this rank in it.
  int ranks = 1, rank = 0;
  /// Ascending; some may be empty on this rank.
  std::vector<int> parameters;
  /// FlatBuckets::layer_group: the layer group whose tapes use it first on this rank, as depth_of_layer_group
  /// orders them.
  int64_t layer_group = 0;

  int64_t shard_bytes() const { return (end - begin) / ranks; }
  int64_t shard_begin(int r) const { return begin + r * shard_bytes(); }
  int64_t own_begin() const { return shard_begin(rank); }
  int64_t own_end() const { return shard_begin(rank + 1); }
};

struct FlatLayout {
  std::vector<Shape> shapes;        ///< local
  std::vector<int64_t> offsets;     ///< bytes, by parameter
  std::vector<FlatBucket> buckets;  ///< tile the buffer in order
  std::vector<int> bucket_of;       ///< by parameter
  int64_t bytes = 0;
};

/// `trainable_only`: frozen tensors are empty.
FlatLayout flat_layout(const ParameterTable& table, const Placement& placement, DType dtype,
                       bool trainable_only = false);
/// Tensors of several types; not where ranks shard the buffer.
FlatLayout flat_layout(const ParameterTable& table, const Placement& placement,
                       const std::function<DType(const ParameterSpec&)>& dtype, bool trainable_only = false);

}  // namespace ingot
