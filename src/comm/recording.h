// A rank of a world for dry runs: its groups need no other rank, send nothing and record what they are asked
// for. With the null device (tape/tape.h) it runs a rank's program as far as the order of its operations
// goes.
#pragma once
#include "comm/world.h"

namespace ingot {

/// A collective that a group was asked for. Tensors are not touched.
struct RecordedOperation {
  const Communicator* group;
  CommKind kind;
  Tensor in, out;
};

class RecordingWorld final : public World {
 public:
  RecordingWorld(int rank, int ranks) : World(rank, ranks) {}
  std::unique_ptr<Communicator> group(std::string name, const std::vector<int>& members) override;
  /// In order, of all groups.
  const std::vector<RecordedOperation>& operations() const { return operations_; }
  void clear() { operations_.clear(); }
  /// World ranks of a group that this world made.
  static const std::vector<int>& members(const Communicator& group);

 private:
  class Group;
  std::vector<RecordedOperation> operations_;
};

}  // namespace ingot
