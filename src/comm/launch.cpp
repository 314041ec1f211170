// See launch.h.
#include "comm/launch.h"

#include <cstdlib>

#ifdef INGOT_HAS_MPI
#include "comm/mpi_world.h"
#endif

namespace ingot {
namespace {

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

}  // namespace

std::optional<Launch> find_launch() {
  struct Candidate {
    const char *variable, *launcher;
  };
  for (const Candidate& c : {Candidate{"OMPI_COMM_WORLD_SIZE", "mpirun (Open MPI)"}, Candidate{"PMI_SIZE", "mpirun (MPICH)"},
                             Candidate{"SLURM_STEP_NUM_TASKS", "srun"}})
    if (const int ranks = number_in(c.variable); ranks > 1) return Launch{c.launcher, ranks};
  if (const int ranks = number_in("WORLD_SIZE"); ranks > 1 && std::getenv("RANK"))
    throw Error(fmt::format("this process is one of {} ranks (WORLD_SIZE, RANK) of a launcher that does not start MPI", ranks),
                "start the ranks with mpirun or srun; for a run of one rank unset WORLD_SIZE");
  return std::nullopt;
}

std::unique_ptr<World> launch_world() {
  const std::optional<Launch> launch = find_launch();
  if (!launch) return self_world();
#ifdef INGOT_HAS_MPI
  std::unique_ptr<World> world = mpi_world();
  if (world->ranks() == launch->ranks) return world;
  const std::string found = fmt::format("{} sees {}", mpi_library(), world->ranks());
  world.reset();
  throw Error(fmt::format("{} started {} ranks, but {}", launch->launcher, launch->ranks, found),
              "start it with the mpirun of the library that it was built with; under Slurm try srun --mpi=pmix");
#else
  throw Error(fmt::format("{} started {} ranks, but this program was built without MPI", launch->launcher, launch->ranks),
              "build with -DINGOT_MPI=ON");
#endif
}

}  // namespace ingot
