// See op_program.h.
#include "plan/op_program.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "nn/parameter.h"
#include "train/phase_kind.h"

namespace ingot {
namespace {

int64_t layer_group_of(const Segment& segment) {
  if (segment.layer >= 0) return segment.layer;
  const std::string_view name = segment.name;
  return name == "embed"  ? depth_of_layer_group(kEmbeddingGroup)
         : name == "head" ? depth_of_layer_group(kHeadGroup)
                          : kNoLayerGroup;
}

class Recorder final : public TapeObserver, public ScheduleObserver {
 public:
  /// `adds`: the step has more micro-batches, which add to the gradients of weights.
  Recorder(size_t chunks, bool adds) : program_(chunks), adds_(adds) {}

  void before_entry(std::span<const ScheduleEntry> entries) override {
    const Work& w = entries.front().work;
    PassProgram& p = program_[static_cast<size_t>(w.chunk)][static_cast<size_t>(w.kind)];
    here_ = p.empty() ? &p : nullptr;
    scheduled_ = true;
    handles_.clear();
  }
  void after_entry(const ScheduleEntry&) override { here_ = nullptr; }

  void ran(const OpRun& run) override {
    if (!scheduled_) {
      const bool back = run.direction != Direction::forward || run.is_recompute || !program_[0][1].empty();
      here_ = &program_[0][back ? 1 : 0];
    }
    if (here_ == nullptr) return;
    PassStep step;
    step.op = run.op.name;
    step.what = time_of(run.op);
    step.direction = run.direction;
    step.flops = run.flops, step.bytes = run.bytes, step.wire_bytes = run.wire_bytes;
    // A gradient that is added to is read too. Recorded is the first micro-batch, which overwrites it.
    if (adds_ && run.direction == Direction::backward_weight && run.bytes == touched_bytes(run.call))
      for (const GradSlot& g : run.call.d_in)
        if (g.wanted() && !g.accumulate) step.bytes += static_cast<double>(g.tensor.bytes());
    step.sizes = sizes_of(run);
    step.layer_group = layer_group_of(run.segment);
    if (run.wire_bytes > 0) {
      step.kind = PassStep::Kind::transfer;
      const auto find = run.op.axis_rule.group;
      const Communicator* group = find != nullptr ? find(run.call.attr_data) : nullptr;
      step.group = group != nullptr ? group->name() : "tensor";
    }
    here_->push_back(std::move(step));
  }
  void took_off(int32_t transfer) override {
    if (here_ == nullptr || here_->empty() || here_->back().kind != PassStep::Kind::transfer) return;
    handles_[transfer] = next_;
    here_->back().handle = next_++;
  }
  void landed(int32_t transfer) override {
    const auto found = handles_.find(transfer);
    if (here_ == nullptr || found == handles_.end()) return;
    PassStep step;
    step.kind = PassStep::Kind::wait;
    step.what = TimeOf::exchanges;
    step.handle = found->second;
    here_->push_back(std::move(step));
    handles_.erase(found);
  }
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}

  std::vector<StagePrograms> take() { return std::move(program_); }

 private:
  std::vector<StagePrograms> program_;
  const bool adds_;
  PassProgram* here_ = nullptr;
  bool scheduled_ = false;
  std::map<int32_t, int> handles_;
  int next_ = 0;
};

}  // namespace

int64_t usable_domain(const Grid& grid, const Cluster& cluster) {
  const int64_t domain = cluster.links.empty() ? 0 : cluster.links.front().ranks;
  const int64_t tensor = grid.size(GridAxis::tp), expert = grid.size(GridAxis::ep) * grid.size(GridAxis::etp);
  for (const int64_t whole : {std::lcm(tensor, expert), tensor})
    if (domain > 0 && whole <= domain) return domain / whole * whole;
  return domain;
}

GroupShape shape_of_group(const Communicator& group, const Grid& grid, const Cluster& cluster) {
  if (group.size() == 1) return {};
  const int64_t domain = usable_domain(grid, cluster);
  if (domain == 0) return {group.size(), group.size()};
  const std::vector<int>& members = RecordingWorld::members(group);
  const auto inside = std::count_if(members.begin(), members.end(),
                                    [&](int r) { return r / domain == members.front() / domain; });
  return {group.size(), static_cast<int>(inside)};
}

std::map<std::string, GroupShape> group_shapes(const PaperRank& rank, const Cluster& cluster) {
  std::map<std::string, GroupShape> shapes;
  const RankGroups& g = rank.groups();
  for (const Communicator* c :
       {&g.tensor(), &g.expert(), &g.context(), &g.context_inner(), &g.tokens(), &g.data()})
    shapes[c->name()] = shape_of_group(*c, g.grid(), cluster);
  if (g.options().dispatch == DispatchKind::hierarchical)
    for (const Communicator* c : {&g.expert_across(), &g.expert_inside()})
      shapes[c->name()] = shape_of_group(*c, g.grid(), cluster);
  return shapes;
}

RankProgram record_program(const PaperRank& rank, size_t phase, const Cluster& cluster) {
  const TrainEngine& engine = rank.engine();
  const Recipe& recipe = engine.recipe();
  const PhaseConfig& s = recipe.phases.at(phase);
  const int64_t micro = micro_rows(s, 0, recipe.data_ranks());
  StepOptions options = step_options(recipe, engine.model(), s, micro);
  const NamedPolicy policy(recipe.memory.recompute, recipe.memory.offload, recipe.memory.fp8);
  options.policy = &policy;
  StepRanks ranks = engine.step_ranks();
  const int chunks = engine.pipeline().layout().chunks(), stages = engine.pipeline().stages();
  // Merged passes are recorded apart; the simulator merges them.
  if (ranks.schedule == PipelineScheduleKind::merged)
    ranks.schedule =
        chunks > 1 ? PipelineScheduleKind::interleaved : PipelineScheduleKind::one_forward_one_backward;
  if (stages == 1) ranks.pipe = nullptr;
  // A pass is recorded once: one micro-batch has all kinds where chunks do not take them in groups.
  const bool grouped = chunks > 1 || ranks.schedule != PipelineScheduleKind::one_forward_one_backward;
  Recorder recorder(static_cast<size_t>(chunks),
                    planned_rows(s, 0, recipe.data_ranks()) > micro * recipe.data_ranks());
  RankProgram program;
  program.held_bytes = plan_step(engine.model(), options, micro, s.sequence, ranks, grouped ? stages : 1,
                                 {&recorder, &recorder})
                           .held_bytes;
  program.chunks = recorder.take();
  program.groups = group_shapes(rank, cluster);
  return program;
}

}  // namespace ingot
