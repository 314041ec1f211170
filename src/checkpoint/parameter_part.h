// Where a rank's part of a parameter, or of optimizer state shaped like it, lies in the global tensor: what a rank saves and
// what it reads back, in whatever layout. A part is a range of elements of the rank's local tensor (row-major): all of
// them, or a shard.
#pragma once
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "nn/parameter.h"

namespace ingot {

/// A box of the global tensor that is contiguous in the local one, from element `offset` of the part on.
struct PartBox {
  Region region;
  int64_t offset = 0;
};

/// The boxes of local elements [begin, end); they tile them in order.
std::vector<PartBox> boxes_of(const ParameterSpec& spec, const Placement& placement, int64_t begin,
                              int64_t end);

/// Adds the pieces of local elements [begin, end), which lie at `data`.
void add_part(std::vector<Piece>& pieces, const std::string& name, TensorKind kind, const ParameterSpec& spec,
              const Placement& placement, DType dtype, const void* data, int64_t begin, int64_t end);

/// Reads local elements [begin, end) into `data`. Error where the checkpoint's tensor has another shape.
void read_part(const CheckpointReader& reader, const std::string& name, const ParameterSpec& spec,
               const Placement& placement, DType dtype, void* data, int64_t begin, int64_t end);

}  // namespace ingot
