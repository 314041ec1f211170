// See pipeline_groups.h.
#include "parallel/pipeline_groups.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/host_copy.h"

namespace ingot {

PipelineGroups::PipelineGroups(const Grid& grid, int rank, const GroupMaker& make, PipelineLayout layout,
                               const ParameterTable& table)
    : layout_(std::move(layout)) {
  const std::vector<int> members = grid.group({GridAxis::pp}, rank);
  if (layout_.ranks != static_cast<int>(members.size()))
    fail("the pipeline layout '{}' is made for {} ranks; grid {}", layout_.str(), layout_.ranks, grid.str());
  if (members.size() == 1 && layout_.chunks() > 1)
    throw Error(
        fmt::format("the pipeline layout '{}' has {} stages for one rank", layout_.str(), layout_.chunks()),
        "a model of one pipeline rank has one stage");
  forward_ = make("pipeline forward", members);
  backward_ = make("pipeline backward", members);
  layer_groups_ = layout_.layer_groups_of(stage());
  if (stages() == 1) return;  // which holds everything
  std::vector<Placement> held;
  for (int s = 0; s < stages(); ++s) held.push_back({.layer_groups = layout_.layer_groups_of(s)});
  for (int i = 0; i < table.size(); ++i) {
    std::vector<int> holders;
    for (int s = 0; s < stages(); ++s)
      if (holds(held[static_cast<size_t>(s)], table[i])) holders.push_back(members[static_cast<size_t>(s)]);
    const bool here = std::find(holders.begin(), holders.end(), rank) != holders.end();
    if (here && holders.size() > 1)
      held_by_several_.emplace_back(i, make("pipeline copies of " + table[i].name, holders));
  }
}

Placement PipelineGroups::placement(Placement other_axes) const {
  if (stages() > 1) other_axes.layer_groups = layer_groups_;
  return other_axes;
}

bool PipelineGroups::owns(const ParameterSpec& spec) const {
  return stages() == 1 || std::find(layer_groups_.begin(), layer_groups_.end(), spec.layer_groups.front()) !=
                              layer_groups_.end();
}

bool PipelineGroups::held_by_other_stages(int parameter) const {
  return std::any_of(held_by_several_.begin(), held_by_several_.end(),
                     [&](const auto& s) { return s.first == parameter; });
}

int PipelineGroups::chunks_with(const ParameterSpec& spec) const {
  int chunks = 0;
  for (int chunk = 0; chunk < layout_.chunks(); ++chunk) chunks += uses(chunk, spec);
  return chunks;
}

bool PipelineGroups::uses(int chunk, const ParameterSpec& spec) const {
  return holds({.layer_groups = layer_groups_of(layout_.at(stage(), chunk))}, spec);
}

void PipelineGroups::sum_over_stages(GradientBuffer& gradients) const {
  for (const auto& [i, group] : held_by_several_) {
    if (gradients.gradient(i).numel() == 0) continue;
    if (gradients.level() == ShardLevel::full) {
      const Tensor shard = gradients.reduced(gradients.layout().bucket_of[static_cast<size_t>(i)]);
      group->all_reduce(shard, shard).wait();
      continue;
    }
    const Tensor g = gradients.gradient(i);
    if (!gradients.written(i)) set_zero(gradients.slot(i).tensor);
    group->all_reduce(g, g).wait();
  }
}

}  // namespace ingot
