// What is reduced over ranks at once: a bucket of the flat layout (nn/flat_layout.h) or, where buckets are
// whole tensor groups so that few matrices lie in two shards (a sharded optimizer with Muon), a part of
// them.
//
// Parts are dealt by depth, the head first, each of about FlatSharding::bucket_bytes and of all tensor
// groups, so that they complete one after the other while backward runs. The shards stay as they are: rank
// r gets of a part what lies in its shards. Pure functions of table and placement.
#pragma once
#include <vector>

#include "nn/flat_layout.h"

namespace ingot {

/// A contiguous range of a bucket, in bytes of the flat buffer.
struct ReductionRange {
  int bucket = 0;
  int64_t begin = 0, end = 0;
  std::vector<int> parameters;
  bool whole = false;  ///< the whole bucket
  /// The elements that each rank of the bucket keeps.
  std::vector<int64_t> rows(const FlatBucket& of, int64_t element_bytes) const;
};

struct ReductionPart {
  std::vector<ReductionRange> ranges;
  std::vector<int> parameters;
};

/// The ranges of all parts tile the flat buffer. Parameters whose gradients are reduced late (`late`, by
/// parameter) are in parts of whole buckets, or of their own.
std::vector<ReductionPart> reduction_parts(const ParameterTable& table, const Placement& placement,
                                           const FlatLayout& layout, const std::vector<bool>& late);

}  // namespace ingot
