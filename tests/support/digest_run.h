// A run of a few quick steps on thread ranks, for tests of what it records and finds about its bits.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/threads.h"
#include "support/flipper.h"
#include "support/support.h"

namespace ingot::test {

/// TOML of a run of 8 steps of 6 sequences of a dense model of one layer, in two phases, on `text.txt`, all
/// in `folder`: copies are compared every second step, a checkpoint is made every fourth.
std::string digest_recipe(const std::string& folder, const std::string& run);

struct Flip {
  FlipPlace place = FlipPlace::weight;
  int rank = 0;
  int64_t step = 0;  ///< 0: none
  uint64_t seed = 0;
};

/// Runs the recipe on ranks of this process, with what the program does around it for those who watch:
/// failure.json and status files. Returns whether the flip was made; throws what the run throws. `from`: the
/// checkpoint to go back to; below 0: none.
bool run_with_flip(const std::string& recipe, const std::vector<std::string>& options, int ranks,
                   const Flip& flip, int64_t from = -1);

}  // namespace ingot::test
