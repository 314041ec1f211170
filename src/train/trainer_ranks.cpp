// See trainer.h: what a run's ranks do together, apart from the step itself.
#include <cmath>

#include "base/log.h"
#include "checkpoint/reader.h"
#include "comm/agree.h"
#include "report/run_record.h"
#include "train/group_check.h"
#include "train/rank_check.h"
#include "train/run_layout.h"
#include "train/trainer.h"

namespace ingot {
namespace {

std::string nothing() {
  return {};
}

GroupMaker group_maker(World& world) {
  return [&world](std::string name, const std::vector<int>& members) {
    return world.group(std::move(name), members);
  };
}

}  // namespace

void Trainer::join(World* world) {
  if (world == nullptr) world = (alone_ = self_world()).get();
  world_ = world;
  groups_ = std::make_unique<RankGroups>(grid_of(recipe_.parallel, world->ranks()), world->rank(),
                                         group_maker(*world), rank_options(recipe_));
  recipe_.parallel.data = groups_->batch_ranks();
  require_same_program(groups_->world(), recipe_);
  for (const std::string& change : recipe_.fit_batches())
    if (leads()) log::warn("{}", change);
  require_shares(recipe_);
}

void Trainer::open_folder(StartMode start) {
  const std::string& folder = recipe_.run.folder;
  agree(&groups_->world(), nothing, [&](const auto&) {
    fs_.create_folders(folder);
    lock_ = std::make_unique<FolderLock>(folder, "run");
    if (start == StartMode::fresh && fs_.exists(folder + "/" + run_files::kRecord))
      throw Error(fmt::format("'{}' already holds a run", folder),
                  "resume it (without --fresh), or choose another --run.folder, or delete the folder");
    return nothing();
  });
  require_one_folder(groups_->world(), fs_, folder);
}

std::optional<CheckpointReader> Trainer::newest_checkpoint() const {
  const std::string checkpoints = recipe_.run.folder + "/" + run_files::kCheckpoints;
  std::optional<CheckpointReader> newest;
  const std::string path = agree(&groups_->world(), nothing, [&](const auto&) {
    newest = CheckpointReader::open_newest(fs_, checkpoints);
    if (!newest) require_no_checkpoints(checkpoints);
    return newest ? newest->path() : nothing();
  });
  if (!leads() && !path.empty()) newest = CheckpointReader::open(fs_, path, Verify::structure);
  return newest;
}

void Trainer::build_model() {
  const std::string unchecked =
      agree(&groups_->world(), nothing, [&](const auto&) { return check_ranks(recipe_, world_->ranks()); });
  if (leads() && !unchecked.empty()) log::info("not checked before the first step: {}", unchecked);
  // What stands in which stage follows from the parameters' names, which a model of this rank's parts is made from.
  const Decoder whole(recipe_.model);
  pipe_ = std::make_unique<PipelineGroups>(groups_->grid(), world_->rank(), group_maker(*world_),
                                           layout_of(recipe_.parallel, recipe_.model), whole.table());
  model_ = std::make_unique<Model>(recipe_.model, recipe_.run.model_precision(),
                                   pipe_->placement(groups_->placement()));
  model_->join([this](Context& c) {
    groups_->join(c);
    if (c.context_rows == nullptr) c.context = nullptr;  // samples: each context rank runs whole sequences
  });
  model_->freeze(recipe_.optimizer.freeze);
  const ParameterTable& table = model_->decoder().table();
  if (table.trainable() == 0)
    throw Error("optimizer.freeze matches every parameter: nothing is left to train", "narrow its patterns");
  const ShardLevel level = recipe_.parallel.shard;
  if (level != ShardLevel::none) shards_ = std::make_unique<Shards>(*groups_, model_->weights());
  if (level == ShardLevel::full)
    gatherer_ = std::make_unique<WeightGatherer>(*groups_, model_->weights(), pipe_.get());
  ownership_ = shards_ ? std::make_unique<Ownership>(*groups_, *pipe_, table, *shards_)
                       : std::make_unique<Ownership>(*groups_, *pipe_, table);
  gradients_ = std::make_unique<GradientBuffer>(table, model_->weights().placement(), DType::f32);
}

GradNorm Trainer::norm_over_ranks(double scale) const {
  const ParameterTable& table = model_->decoder().table();
  const GradNorm local = gradient_norm(optimizer_->params(), scale);
  GradNorm norm;
  norm.sum_squares.resize(static_cast<size_t>(table.size()));
  for (size_t i = 0; i < local.sum_squares.size(); ++i) {
    const int parameter = table.find(optimizer_->params()[i].name);
    if (!ownership_->owned(parameter).empty())
      norm.sum_squares[static_cast<size_t>(parameter)] = local.sum_squares[i];
  }
  const Tensor sums = Tensor::of(norm.sum_squares.data(), {table.size()});
  if (groups_->world().size() > 1) groups_->world().all_reduce(sums, sums).wait();
  norm.combine(scale);
  return norm;
}

std::string Trainer::describe_bad_norm(const GradNorm& norm) const {
  const std::string& name = model_->decoder().table()[static_cast<int>(norm.first_bad)].name;
  for (const ParamView& p : optimizer_->params())
    if (p.name == name) return describe_bad_gradient({&p, 1}, GradNorm{{}, norm.norm, 0});
  return fmt::format("the gradient of '{}', which other ranks hold, is not finite", name);
}

int64_t Trainer::sum_over_model(int64_t value) const {
  auto sum = static_cast<double>(value);
  const Tensor t = Tensor::of(&sum, {1});
  groups_->tensor().all_reduce(t, t).wait();
  pipe_->forward().all_reduce(t, t).wait();
  return static_cast<int64_t>(sum);
}

StepRanks Trainer::step_ranks() const {
  const bool table_runs = pipe_->stages() > 1 || recipe_.parallel.schedule == PipelineScheduleKind::merged;
  return {groups_.get(), table_runs ? pipe_.get() : nullptr, recipe_.parallel.schedule, gatherer_.get()};
}

bool Trainer::agree_to_go_on(bool stop) {
  if (groups_->world().size() == 1) return !stop;
  int32_t votes[2] = {stop, checkpoints_->written()};
  const Tensor t = Tensor::of(votes, {2});
  groups_->world().all_reduce(t, t).wait();
  if (votes[1] == groups_->world().size()) try_commit();
  return votes[0] == 0;
}

}  // namespace ingot
