// What `ingot run` and `ingot finetune` share: a recipe run to its end, with messages for the person at the
// terminal.
#pragma once
#include <string>

#include "train/trainer.h"

namespace ingot {

/// Runs or resumes a recipe; the exit code: 0, or 130 where it was interrupted and saved.
int run_recipe(const Recipe& recipe, StartMode start);

}  // namespace ingot
