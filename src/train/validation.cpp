// See validation.h.
#include "train/validation.h"

#include <cmath>
#include <optional>

#include "base/progress.h"
#include "data/rows.h"

namespace ingot {

std::optional<ValidationScore> validate(TrainEngine& engine, const data::Dataset& source,
                                        const PhaseConfig& phase, int64_t max_tokens,
                                        const std::function<bool()>& stops) {
  const Recipe& recipe = engine.recipe();
  const RankGroups& groups = engine.ranks().groups();
  const PipelineGroups& pipeline = engine.pipeline();
  const data::ValidationPass pass(source.validation(), phase.sequence, recipe.data.rows());
  const int64_t data = recipe.data_ranks();
  const int64_t micro = phase.micro(data) * pipeline.stages();  // so that all stages have work
  const int64_t windows = max_tokens > 0
                              ? std::min(pass.windows(), std::max<int64_t>(1, max_tokens / phase.sequence))
                              : pass.windows();
  double sums[2] = {0, 0};           // of -logprob, and targets
  std::optional<Progress> progress;  // of all tokens at a run's end it can be minutes
  if (engine.ranks().world().rank() == 0)
    progress.emplace(fmt::format("validating on {}", source.name()), windows * phase.sequence);
  // Data ranks take windows in turn. At the end some repeat a window that does not count: the ranks of an
  // expert group must have equally many tokens.
  for (int64_t first = 0; first < windows;) {
    if (stops()) return std::nullopt;
    const int64_t left = windows - first,
                  count = left >= micro * data ? micro : std::max<int64_t>(1, left / data);
    const int64_t mine = first + count * groups.batch_rank();
    const auto [nll, valid] = engine.evaluate(pass.batch(mine < windows ? mine : first, count));
    if (mine < windows) sums[0] += nll, sums[1] += static_cast<double>(valid);
    first += count * data;
    if (progress) progress->update(std::min(first, windows) * phase.sequence);
  }
  const Tensor t = Tensor::of(sums, {2});
  groups.data().all_reduce(t, t).wait();
  pipeline.forward().all_reduce(t, t).wait();  // the last stage has them
  const auto [nll, valid] = sums;
  // The windows seen have their share of the split's bytes.
  const double bytes = static_cast<double>(pass.text_bytes()) * valid / static_cast<double>(pass.targets());
  return ValidationScore{valid > 0 ? nll / valid : 0, bytes > 0 ? nll / std::log(2.0) / bytes : 0, valid};
}

}  // namespace ingot
