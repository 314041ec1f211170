// See retention.h.
#include "checkpoint/retention.h"

#include <set>

#include "base/log.h"
#include "checkpoint/layout.h"

namespace ingot {

std::vector<std::string> apply_retention(FileSystem& fs, const std::string& folder,
                                         const RetentionPolicy& policy) {
  std::vector<std::string> deleted;
  if (policy.keep_last < 1) return deleted;
  int newer = 0;
  bool kept_before = false;
  std::set<int64_t> steps;
  for (const auto& [name, manifest] : checkpoint_layout::complete_checkpoints(fs, folder, false)) {
    const bool before = !kept_before && manifest.step < policy.keep_before;
    kept_before |= before;
    const bool first_of_its_step = steps.insert(manifest.step).second;
    const bool periodic =
        policy.keep_every > 0 && manifest.step % policy.keep_every == 0 && first_of_its_step;
    if (newer++ < policy.keep_last || periodic || before || !manifest.protection.empty()) continue;
    try {
      checkpoint_layout::remove_checkpoint(fs, folder, name);
      deleted.push_back(name);
    } catch (const Error& error) {
      log::warn("cannot delete the old checkpoint '{}/{}': {}", folder, name, error.what());
    }
  }
  return deleted;
}

}  // namespace ingot
