// Where every tensor of a rank lies in one flat buffer of weights, gradients or optimizer state. Ranks that hold the same
// tensors share them out by cutting the buffer, not the tensors: into units, and each unit into equal ranges, one a rank.
//
// A pure function of the parameter table and the placement, so every rank knows the layout of all. Tensors of a unit lie
// side by side and are never cut by a unit's border; each starts on a block, and padding is zero and stays so under sums.
// Where units are parts, what other stages of a pipeline hold too has a unit of its own, which is cut alike on all of them.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "nn/parameter.h"

namespace ingot {

/// The groups of a flat buffer, in order: dense matrices, experts, then what element-wise optimizers move.
enum class FlatGroup : uint8_t { matrices, experts, vectors };
constexpr FlatGroup kFlatGroups[] = {FlatGroup::matrices, FlatGroup::experts, FlatGroup::vectors};
FlatGroup flat_group(const ParameterSpec& spec);

/// What travels at once: one group of tensors, some of them, or a part of the model's depth.
struct FlatBucket {
  FlatGroup group = FlatGroup::matrices;
  bool summed = false;          ///< over tensor ranks first (summed_over_tensor_ranks)
  int64_t begin = 0, end = 0;   ///< bytes
  int ranks = 1, rank = 0;      ///< who share it out, and this one among them
  std::vector<int> parameters;  ///< ascending; some may be empty on this rank
  int64_t part =
      0;  ///< FlatBuckets::part: where in the model's depth this rank's tapes meet it (depth_of_part)
  int64_t share() const { return (end - begin) / ranks; }
  int64_t share_begin(int r) const { return begin + r * share(); }
  int64_t own_begin() const { return share_begin(rank); }
  int64_t own_end() const { return share_begin(rank + 1); }
};

struct FlatLayout {
  std::vector<Shape> shapes;      ///< local
  std::vector<int64_t> offsets;   ///< bytes, by parameter
  std::vector<FlatBucket> units;  ///< tile the buffer in order
  std::vector<int> bucket_of;     ///< by parameter
  int64_t bytes = 0;
};

/// `trainable_only`: frozen tensors are empty.
FlatLayout flat_layout(const ParameterTable& table, const Placement& placement, DType dtype,
                       bool trainable_only = false);

}  // namespace ingot
