// The world of processes that mpirun or srun started, over MPI 3.1 (Open MPI and MPICH). Only mpi_world.cpp
// includes MPI's header. Each group is an MPI communicator of its own.
#pragma once
#include <memory>

#include "comm/world.h"

namespace ingot {

/// Initialises MPI; once per process. The destructor waits for the other ranks, at most the abort limit, and
/// finalises. Where a rank fails, all end: World::run() prints its message first. Ranks of one node that may
/// run on the same cores divide them (num_threads()); $INGOT_THREADS goes before.
std::unique_ptr<World> mpi_world();

/// "Open MPI v4.1.4": the library that this program runs with.
std::string mpi_library();

}  // namespace ingot
