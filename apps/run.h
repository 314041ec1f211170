// Shared by `ingot run` and `ingot finetune`: trains a recipe to its end and prints messages to the
// terminal.
#pragma once
#include <string>

#include "train/trainer.h"

namespace ingot {

/// Runs, resumes or rewinds a recipe; the exit code: 0, or 130 where it was interrupted and saved. `metrics`:
/// where the leading rank serves its numbers to Prometheus (serve/metrics_server.h); empty: nowhere.
int run_recipe(const Recipe& recipe, const StartOptions& start, const Rewind& rewind = {},
               const std::string& metrics = "");

}  // namespace ingot
