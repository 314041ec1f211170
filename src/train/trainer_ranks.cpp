// See trainer.h: what a run's ranks do together, apart from the step itself.
#include <cmath>

#include "base/build_info.h"
#include "base/log.h"
#include "checkpoint/reader.h"
#include "comm/settle.h"
#include "record/run_record.h"
#include "train/trainer.h"

namespace ingot {
namespace {

std::string nothing() { return {}; }

/// What must be the same on all ranks: the program, its kernels and the recipe.
std::string identity(const Recipe& recipe) {
  return fmt::format("commit {}\nkernel set {}\n{}", build_info().commit, kernel_set_fingerprint(), print_config(recipe));
}

/// The first line that differs.
std::string first_difference(const std::string& a, const std::string& b) {
  size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  const auto line = [&](const std::string& text) {
    const size_t begin = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const size_t from = begin == std::string::npos ? 0 : begin + 1;
    const std::string found = text.substr(from, text.find_first_of("\n#", from) - from);
    return found.substr(0, found.find_last_not_of(' ') + 1);
  };
  return fmt::format("'{}' and '{}'", line(a), line(b));
}

GridShape grid_of(const ParallelConfig& p, int ranks) {
  const int64_t others = p.tensor;
  if (ranks % others != 0)
    throw Error(fmt::format("{} ranks do not divide into groups of parallel.tensor = {}", ranks, p.tensor),
                "start a multiple of it, or change parallel.tensor");
  const int64_t data = ranks / others;
  if (p.data != 0 && p.data != data)
    throw Error(fmt::format("parallel.data = {} x parallel.tensor = {} needs {} ranks, but {} {} started", p.data, p.tensor,
                            p.data * others, ranks, ranks == 1 ? "was" : "were"),
                fmt::format("start that many (mpirun -n {}), or leave parallel.data at 0", p.data * others));
  return {.dp = static_cast<int>(data), .tp = static_cast<int>(p.tensor), .ep = static_cast<int>(p.expert)};
}

}  // namespace

void Trainer::join(World* world) {
  if (world == nullptr) world = (alone_ = self_world()).get();
  world_ = world;
  const Grid grid(grid_of(recipe_.parallel, world->ranks()));
  groups_ = std::make_unique<RankGroups>(grid, world->rank(), [&](std::string name, const std::vector<int>& members) {
    return world->group(std::move(name), members);
  });
  recipe_.parallel.data = groups_->batch_ranks();
  settle(&groups_->world(), [&] { return identity(recipe_); }, [](const std::vector<std::string>& ranks) {
    for (size_t r = 1; r < ranks.size(); ++r)
      if (ranks[r] != ranks[0])
        throw Error(fmt::format("ranks 0 and {} do not run the same: {}", r, first_difference(ranks[0], ranks[r])),
                    "start one program with one recipe on all ranks");
    return nothing();
  });
  for (size_t i = 0; i < recipe_.stages.size(); ++i)
    for (int64_t level = 0; level < recipe_.stages[i].levels(); ++level) {
      const StageConfig& s = recipe_.stages[i];
      const int64_t data = recipe_.data_ranks(), batch = s.batch_at(level), unit = data * std::max<int64_t>(1, s.micro_batch);
      if (batch % unit != 0)
        throw Error(fmt::format("stage '{}': a batch of {} sequences does not divide among {} data ranks in micro-batches of {}",
                                s.name, batch, data, s.micro_batch > 0 ? s.micro_batch : batch / data),
                    fmt::format("choose stages.{}.batch as a multiple of {}", i, unit));
    }
}

void Trainer::open_folder(StartMode start) {
  const std::string& folder = recipe_.run.folder;
  settle(&groups_->world(), nothing, [&](const auto&) {
    fs_.create_folders(folder);
    lock_ = std::make_unique<FolderLock>(folder, "run");
    if (start == StartMode::fresh && fs_.exists(folder + "/" + run_files::kRecord))
      throw Error(fmt::format("'{}' already holds a run", folder),
                  "resume it (without --fresh), or choose another --run.folder, or delete the folder");
    return nothing();
  });
}

std::optional<CheckpointReader> Trainer::newest_checkpoint() const {
  const std::string checkpoints = recipe_.run.folder + "/" + run_files::kCheckpoints;
  std::optional<CheckpointReader> newest;
  const std::string path = settle(&groups_->world(), nothing, [&](const auto&) {
    newest = CheckpointReader::open_newest(fs_, checkpoints);
    if (!newest) require_no_checkpoints(checkpoints);
    return newest ? newest->path() : nothing();
  });
  if (!leads() && !path.empty()) newest = CheckpointReader::open(fs_, path, Verify::structure);
  return newest;
}

GradNorm Trainer::norm_over_ranks(double scale) const {
  GradNorm norm = gradient_norm(optimizer_->params(), scale);
  if (groups_->world().size() == 1) return norm;
  const ParameterTable& table = model_->decoder().table();
  for (size_t i = 0; i < norm.sum_squares.size(); ++i)
    if (ownership_->owned(table.find(optimizer_->params()[i].name)).empty()) norm.sum_squares[i] = 0;
  const Tensor sums = Tensor::of(norm.sum_squares.data(), {static_cast<int64_t>(norm.sum_squares.size())});
  groups_->world().all_reduce(sums, sums).wait();
  norm.combine(scale);
  return norm;
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
