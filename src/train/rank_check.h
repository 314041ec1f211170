// Checks how a recipe's ranks work together before a run needs them (parallel/layout_check.h).
#pragma once
#include <string>

#include "train/recipe.h"

namespace ingot {

/// The ranks for which a recipe is planned: those that it names, with the fewest data ranks where
/// parallel.data is 0.
int planned_ranks(const Recipe& recipe);

/// Throws Error where a collective is missing or doubled, or a gradient is summed over the wrong ranks.
/// Returns what could not be checked, in words; empty: nothing, or one rank.
std::string check_ranks(const Recipe& recipe, int ranks);

}  // namespace ingot
