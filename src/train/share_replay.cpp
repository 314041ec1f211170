// See share_replay.h.
#include "train/share_replay.h"

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "comm/agree.h"
#include "train/resume_check.h"

namespace ingot {

ShareReplay::ShareReplay(TrainEngine& engine) : engine_(engine), every_(engine.recipe().health.replay_every) {
  const RankGroups& groups = engine.ranks().groups();
  const Grid& grid = groups.grid();
  if (engine.recipe().model.moe.experts > 0) {
    // Both views number the ranks of a stage in one order: whole groups of experts, whole data ranks.
    const int experts = grid.size(GridAxis::ep) * grid.size(GridAxis::etp);
    group_ = experts / std::gcd(experts, grid.size(GridAxis::cp) * grid.size(GridAxis::tp));
  }
  holders_ = grid.size(GridAxis::dp) / group_;
  if (every_ == 0) return;
  const std::vector<std::string> kernels = all_gather_text(groups.world(), kernel_set_of(engine.recipe()));
  if (std::all_of(kernels.begin(), kernels.end(), [&](const std::string& k) { return k == kernels[0]; }))
    return;
  every_ = 0;
  if (groups.leads())
    log::warn(
        "ranks have different kernels, so a step of one does not repeat on another: health.replay_every "
        "is off");
}

uint64_t ShareReplay::digest(int64_t distance, const data::Batch& batch, const StepOptions& options) const {
  return engine_.digest_of_share(batch, options, distance * group_);
}

void ShareReplay::gather(uint64_t mine, int64_t distance, std::vector<ShareDigest>& shares) const {
  Communicator& world = engine_.ranks().groups().world();
  const Grid& grid = engine_.ranks().groups().grid();
  auto value = static_cast<int64_t>(mine);
  std::vector<int64_t> all(static_cast<size_t>(world.size()), value);
  if (world.size() > 1)
    world.all_gather(Tensor::of(&value, {1}), Tensor::of(all.data(), {world.size()})).wait();
  const auto ranks = static_cast<int64_t>(grid.size(GridAxis::dp));
  for (int r = 0; r < world.size(); ++r) {
    const int64_t from = grid.index(GridAxis::dp, r), to = (from + distance * group_) % ranks;
    const int64_t width = grid.size(GridAxis::cp) * grid.size(GridAxis::tp);
    shares.push_back(
        {r, static_cast<int>(r + (to - from) * width), static_cast<uint64_t>(all[static_cast<size_t>(r)])});
  }
}

void ShareReplay::make(const data::Batch& batch, const StepOptions& options) {
  made_ = digest(holders_ > 1 ? 1 : 0, batch, options);
}

std::optional<Disagreement> ShareReplay::compare(uint64_t own, const data::Batch& batch,
                                                 const StepOptions& options) {
  std::vector<ShareDigest> shares;
  gather(own, 0, shares);
  gather(made_, holders_ > 1 ? 1 : 0, shares);
  const std::optional<Disagreement> found = find_disagreement(shares);
  if (!found || holders_ < 3) return found;
  gather(digest(2, batch, options), 2, shares);
  return find_disagreement(shares);
}

}  // namespace ingot
