// Branches: a run that begins where a checkpoint of another run stands (run.branch_from), under a schedule, a
// mixture or a layout of its own. The recipe of a branch states the whole course, the trunk's steps included:
// its steps are counted from the trunk's first. A branch whose recipe gives the steps before the checkpoint
// what the trunk had ends with the bits of a run that took them itself.
#pragma once
#include <string>

#include "exchange/stored_model.h"
#include "train/engine.h"

namespace ingot {

/// Opens run.branch_from: a run folder, a folder of checkpoints or one checkpoint. Error where it holds an
/// import, another model (rope_scaling, rope_theta, context and window may differ), another tokenizer, or a
/// step beyond the recipe's last.
StoredModel open_trunk(FileSystem& fs, const Recipe& recipe, const std::string& tokenizer);

/// Reads the trunk's optimizer as run.branch_optimizer says: keeps it, leaves the new one as it is (reset),
/// or converts it to the recipe's. Error, naming the parameter, where that is not possible.
void restore_trunk_optimizer(const StoredModel& trunk, TrainEngine& engine);

}  // namespace ingot
