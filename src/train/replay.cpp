// See replay.h.
#include "train/replay.h"

#include <algorithm>
#include <set>

#include "report/run_record.h"
#include "train/resume_check.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace ingot {
namespace {

/// Whether a key of a recipe can change the bits of a step.
bool decides(const std::string& path) {
  static constexpr const char* kFree[] = {"run.folder",  "run.log_every", "checkpoint.",
                                          "evaluation.", "samples.",      "health.",
                                          "memory.",     "data.folder",   "tokenizer."};
  if (path.starts_with("data.sources.") && path.ends_with(".path")) return false;
  return std::none_of(std::begin(kFree), std::end(kFree),
                      [&](const char* free) { return path.starts_with(free); });
}

std::string recipe_differences(const std::string& then, const std::string& now) {
  std::string text;
  for (const ConfigDifference& d : diff_config(to_node(recipe_from_toml(then, "the recorded recipe")),
                                               to_node(recipe_from_toml(now, "the present recipe"))))
    if (decides(d.path)) text += fmt::format("\n  recipe: {} was {}, is {}", d.path, d.left, d.right);
  return text;
}

[[noreturn]] void refuse(const std::string& run, const std::string& differences) {
  throw Error(fmt::format("'{}' made these steps with other settings than this replay would have, so their "
                          "bits cannot be compared:{}",
                          run, differences),
              "replay with the program that made them, on as many ranks (ingot launch -n N -- replay ...), "
              "with the recipe of then");
}

/// The starts that made the steps. Error where a step has no digests.
std::vector<DigestStart> starts_of(const ReplayRequest& r, const RecordedDigests& recorded) {
  const std::string path = r.run + "/" + kDigestsFile;
  std::set<size_t> used;
  for (auto s = recorded.steps.upper_bound(r.from); s != recorded.steps.end() && s->first <= r.from + r.steps;
       ++s)
    used.insert(recorded.start_of.at(s->first));
  if (used.empty())
    throw Error(fmt::format("'{}' has no digests of steps {} to {}", path, r.from + 1, r.from + r.steps),
                recorded.steps.empty()
                    ? "a run writes them unless health.digest_every and health.agree_every are 0"
                    : fmt::format("it has those of steps {} to {}", recorded.steps.begin()->first,
                                  recorded.steps.rbegin()->first));
  if (recorded.steps.rbegin()->first < r.from + r.steps)
    throw Error(fmt::format("'{}' ends at step {}, before step {}", path, recorded.steps.rbegin()->first,
                            r.from + r.steps),
                "replay fewer --steps");
  std::vector<DigestStart> starts;
  for (const size_t i : used) starts.push_back(recorded.starts[i]);
  return starts;
}

std::string program_differences(const DigestStart& then, const std::string& kernels, int ranks) {
  std::string text;
  if (then.kernels != kernels)
    text += fmt::format("\n  kernels: set {}, this program has {}", then.kernels, kernels);
  if (then.ranks != ranks) text += fmt::format("\n  layout: {} ranks, here are {}", then.ranks, ranks);
  return text;
}

std::string recipe_and_layout_differences(const DigestStart& then, const DigestStart& now) {
  std::string text;
  if (then.layout != now.layout) text += fmt::format("\n  layout: '{}', here '{}'", then.layout, now.layout);
  return text + recipe_differences(then.recipe, now.recipe);
}

}  // namespace

ReplayReport replay_run(FileSystem& fs, const ReplayRequest& r, World& world) {
  if (fs.exists(r.folder + "/" + run_files::kRecord))
    throw Error(fmt::format("'{}' holds a run", r.folder), "choose another --folder for the replay");
  const RecordedDigests recorded = read_digests(fs, r.run + "/" + kDigestsFile);
  const std::vector<DigestStart> starts = starts_of(r, recorded);
  const Recipe recipe =
      load_run(fs, r.run, {"--run.folder=" + r.folder, "--health.digest_every=1", "--health.replay_every=0"});
  for (const DigestStart& then : starts)
    if (const std::string found = program_differences(then, kernel_set_of(recipe), world.ranks());
        !found.empty())
      refuse(r.run, found);
  if (world.rank() == 0) fs.remove_all(r.folder + "/" + kDigestsFile);  // of a replay before this one
  Trainer trainer(fs, recipe, StartMode::fresh, &world, Rewind{.from = r.from, .of_run = r.run});
  for (const DigestStart& then : starts)
    if (const std::string found = recipe_and_layout_differences(then, trainer.digest_start()); !found.empty())
      refuse(r.run, found);
  ReplayReport report;
  const auto of_run = [&](int64_t step) {
    const auto found = recorded.steps.find(step);
    return found == recorded.steps.end() ? nullptr : &found->second;
  };
  trainer.replay(
      r.steps, [&](int64_t step) { return of_run(step) != nullptr && !of_run(step)->copies.empty(); },
      [&](const StepDigests& now) {
        const StepDigests* then = of_run(now.step);
        if (then == nullptr) return true;
        report.difference = difference(*then, now);
        if (report.difference) {
          report.different_step = now.step;
          return false;
        }
        ++report.compared;
        report.copies += !then->copies.empty();
        return true;
      });
  return report;
}

}  // namespace ingot
