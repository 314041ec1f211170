// Saves and reads a rank's part of a parameter, or of optimizer state of its shape, in any layout of ranks:
// finds the boxes of the global tensor that the part consists of.
#pragma once
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "nn/parameter.h"

namespace ingot {

/// Elements of a rank's local tensor of a parameter (row-major): all of them, or the rank's shard.
struct ParameterPart {
  const ParameterSpec& spec;
  const Placement& placement;
  Tensor values;      ///< dense, of any shape
  int64_t begin = 0;  ///< of the first value in the local tensor
};

/// A box of the global tensor that is contiguous in the local one, from element `offset` of the part on.
struct PartBox {
  Region region;
  int64_t offset = 0;
};

/// The boxes of local elements [begin, end), in order and without gaps.
std::vector<PartBox> boxes_of(const ParameterSpec& spec, const Placement& placement, int64_t begin,
                              int64_t end);

/// Adds the pieces of a part. Its values must stay there until they are saved.
void add_part(std::vector<Piece>& pieces, const std::string& name, TensorKind kind,
              const ParameterPart& part);

/// Reads a part. Throws Error if the checkpoint's tensor of that name has another shape than the parameter.
void read_part(const CheckpointReader& reader, const std::string& name, const ParameterPart& part);

/// The name of optimizer state: "optimizer/<state>", and of a parameter's state
/// "optimizer/<parameter>.<slot>".
std::string optimizer_state_name(const std::string& state);
/// The <parameter> of "optimizer/<parameter>.<slot>"; nothing for a name of another form.
std::optional<std::string_view> parameter_of_state(std::string_view name);

}  // namespace ingot
