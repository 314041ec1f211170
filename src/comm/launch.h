// The world in which this process was started: alone, or as one of many ranks by mpirun or srun.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace ingot {

/// What the environment says about the launcher.
struct Launch {
  std::string launcher;  ///< "mpirun (Open MPI)", "mpirun (MPICH)", "srun"
  int ranks = 1;
  int rank = -1;  ///< -1: unknown
};

/// The launcher that started this process as one of many ranks; none when it runs alone. Open MPI sets
/// OMPI_COMM_WORLD_SIZE, MPICH's Hydra PMI_SIZE, srun SLURM_STEP_NUM_TASKS. Throws Error where torchrun's
/// variables (WORLD_SIZE, RANK, LOCAL_RANK, LOCAL_WORLD_SIZE) contradict them, or alone name several ranks:
/// ranks meet through MPI, so processes that torchrun started would all do the same work.
std::optional<Launch> find_launch();

/// The cores of this rank where $INGOT_CORES names them: a list for each rank of the run, "0-7;8-15". Empty:
/// not set. Throws Error where it has no list for this rank.
std::vector<int> cores_of(const Launch& launch);

/// The world of this process. Call once, first thing in main(). Binds the rank to cores_of(). Throws Error
/// where a launcher started many ranks and this build cannot join them.
std::unique_ptr<World> launch_world();

/// The MPI library that this program runs with, "Open MPI v4.1.4"; empty: built without.
std::string mpi_name();
/// The mpirun of the MPI that this program was built with.
std::string default_mpirun();
/// What `mpirun --version` prints; empty where it cannot be started.
std::string mpirun_version(const std::string& mpirun);
/// Whether that is Open MPI's, which calls itself OpenRTE too; else it is taken for MPICH's.
bool is_open_mpi(const std::string& version);

}  // namespace ingot
