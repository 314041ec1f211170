// The world in which this process was started: alone, or as one of many ranks by mpirun or srun.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/world.h"

namespace ingot {

/// What a launcher left in the environment.
struct Launch {
  std::string launcher;  ///< "mpirun (Open MPI)", "mpirun (MPICH)", "srun"
  int ranks = 1;
};

/// The launcher that started this process as one of many ranks; none when it runs alone. Open MPI sets
/// OMPI_COMM_WORLD_SIZE, MPICH's Hydra PMI_SIZE, srun SLURM_STEP_NUM_TASKS. Throws Error for ranks started by torchrun
/// (WORLD_SIZE): they would all do the same work.
std::optional<Launch> find_launch();

/// The world of this process. Call once, first thing in main(). Throws Error where a launcher started many ranks and
/// this build cannot join them.
std::unique_ptr<World> launch_world();

}  // namespace ingot
