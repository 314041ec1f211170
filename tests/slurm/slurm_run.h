// What cases under a real Slurm share: a run of four ranks, and Slurm's commands.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "support/support.h"

namespace ingot::test {

/// Of `ingot run`: long enough to be interrupted after the first checkpoint.
extern const std::vector<std::string> kSlurmOptions;

/// What a command prints, which must succeed.
std::string slurm(const std::string& command);
/// Writes the run's recipe and text into a folder; the run's is "run" there.
std::string slurm_recipe(const TempDir& folder);
/// The folder of that run as four ranks of this process make it, undisturbed.
std::string undisturbed_run();
/// False where `there` is false for ten minutes: 3,000 steps, a tenth of a second each where four ranks share
/// two cores with other tests.
bool comes(const std::function<bool()>& there);
/// The step of the first line "interrupted at step N" of a log; 0: none.
int64_t interrupted_at(const std::string& log);

}  // namespace ingot::test
