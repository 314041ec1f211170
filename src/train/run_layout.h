// The layout of a run on its ranks: what [parallel] of a recipe and the number of ranks make, and whether the
// work divides.
#pragma once
#include "comm/grid.h"
#include "comm/world.h"
#include "parallel/pipeline_layout.h"
#include "parallel/rank_groups.h"
#include "train/recipe.h"

namespace ingot {

/// The grid of `ranks` ranks. Throws Error, with the arithmetic, where they do not tile it.
Grid grid_of(const ParallelConfig& config, int ranks);
RankOptions rank_options(const Recipe& recipe);
/// How long a rank waits for others.
CommLimits comm_limits(const ParallelConfig& config);

/// What stands in which stage of the pipeline. Throws Error where the model's layers do not fit.
PipelineLayout layout_of(const ParallelConfig& config, const ModelConfig& model);

/// Throws Error, with the arithmetic, where a stage has too few micro-batches or its sequences do not divide
/// among the ranks. The recipe's parallel.data is that of the grid, and its batches fit it.
void require_shares(const Recipe& recipe);

/// Makes parallel.data that number and fits the batches to it. Returns what became of those that had to
/// change; throws Error as Recipe::fit_batches() and require_shares() do.
std::vector<std::string> fit_to_ranks(Recipe& recipe, int data_ranks);

/// The recipe as a plan takes it: what a run would measure at its start is the default.
Recipe on_paper(Recipe recipe);

/// The layout in words, line by line, for the preflight.
std::vector<std::string> describe_layout(const Recipe& recipe);

/// The patterns without those that match trainable parameters of other pipeline stages only.
GroupConfig groups_of_stage(GroupConfig groups, const ParameterTable& table, std::span<const ParamView> held);

}  // namespace ingot
