// One rank's place and groups, and what its gradients need before an optimizer may use them (docs/parallel.md has the
// table of rules; it is stated here in code once).
#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/grid.h"
#include "nn/context.h"

namespace ingot {

/// Makes this rank's end of a named group over world ranks: World::group.
using GroupMaker = std::function<std::unique_ptr<Communicator>(std::string name, const std::vector<int>& members)>;

class RankGroups {
 public:
  /// The groups of one pipeline stage. Throws Error for grids that nothing runs yet: cp above 1, and etp other than tp.
  RankGroups(const Grid& grid, int rank, const GroupMaker& make);

  const Placement& placement() const { return placement_; }
  int batch_rank() const { return data_->rank(); }  ///< which share of the batch
  int batch_ranks() const { return data_->size(); }
  Communicator& data() const { return *data_; }                 ///< ranks with other tokens
  Communicator& tensor() const { return *tensor_; }
  Communicator& expert() const { return *expert_; }
  Communicator& expert_data() const { return *expert_data_; }  ///< copies of the same experts
  /// Lets a forward pass communicate.
  void join(Context& c) const {
    c.tensor = tensor_.get();
    c.expert = expert_.get();
  }

 private:
  Placement placement_;
  std::unique_ptr<Communicator> data_, tensor_, expert_, expert_data_;
};

/// Sums every gradient over the ranks that hold parts of it. Call once per step after GradientBuffer::finish_step().
void reduce_gradients(const RankGroups& groups, const ParameterTable& table, const GradientBuffer& gradients);

/// Sum of squares of the whole model's reduced gradient, the same on all ranks: each element counts once.
double gradient_square_sum(const RankGroups& groups, const ParameterTable& table, const GradientBuffer& gradients);

}  // namespace ingot
