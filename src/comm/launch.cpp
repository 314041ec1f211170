// See launch.h.
#include "comm/launch.h"

#include <cstdio>
#include <cstdlib>

#include "comm/cores.h"

#ifdef INGOT_HAS_MPI
#include "comm/mpi_world.h"
#endif

namespace ingot {
namespace {

/// -1: not set, or not a number.
int number_in(const char* variable) {
  const char* text = variable ? std::getenv(variable) : nullptr;
  return text && *text >= '0' && *text <= '9' ? std::atoi(text) : -1;
}

struct Variables {
  const char *launcher, *ranks, *rank, *local_rank, *local_ranks;
};
constexpr Variables kLaunchers[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun (MPICH)", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", nullptr}};
constexpr Variables kTorch = {"torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

void require_agreement(const Variables& launcher, const char* theirs, const char* torch) {
  const int launched = number_in(theirs), set = number_in(torch);
  if (launched >= 0 && set >= 0 && launched != set)
    throw Error(fmt::format("{} has set {}={}, but {}={}", launcher.launcher, theirs, launched, torch, set),
                "ranks meet through MPI, so its launcher's numbers hold: unset WORLD_SIZE, RANK, LOCAL_RANK "
                "and LOCAL_WORLD_SIZE, or let "
                "them say the same");
}

}  // namespace

std::optional<Launch> find_launch() {
  for (const Variables& v : kLaunchers) {
    const int ranks = number_in(v.ranks);
    if (ranks <= 1) continue;
    require_agreement(v, v.ranks, kTorch.ranks);
    require_agreement(v, v.rank, kTorch.rank);
    require_agreement(v, v.local_rank, kTorch.local_rank);
    require_agreement(v, v.local_ranks, kTorch.local_ranks);
    return Launch{v.launcher, ranks, number_in(v.rank)};
  }
  if (const int ranks = number_in(kTorch.ranks); ranks > 1)
    throw Error(
        fmt::format("this process is one of {} ranks (WORLD_SIZE), but no MPI launcher has started it",
                    ranks),
        fmt::format("instead of torchrun: ingot launch -n {} -- COMMAND, mpirun or srun; for a run of one "
                    "rank unset WORLD_SIZE",
                    ranks));
  return std::nullopt;
}

std::vector<int> cores_of(const Launch& launch) {
  const char* text = std::getenv("INGOT_CORES");
  if (text == nullptr) return {};
  std::vector<std::string> lists(1);
  for (const char* c = text; *c; ++c) {
    if (*c == ';')
      lists.emplace_back();
    else
      lists.back() += *c;
  }
  const auto rank = static_cast<size_t>(launch.rank);
  if (launch.rank < 0 || lists.size() != static_cast<size_t>(launch.ranks))
    throw Error(fmt::format("INGOT_CORES has {} lists of cores for the {} ranks that {} started",
                            lists.size(), launch.ranks, launch.launcher),
                "give one for each rank, e.g. 0-7;8-15; or unset it");
  return parse_cores(lists[rank], "INGOT_CORES");
}

std::unique_ptr<World> launch_world() {
  const std::optional<Launch> launch = find_launch();
  if (!launch) return self_world();
  if (const std::vector<int> cores = cores_of(*launch); !cores.empty())
    bind_to_cores(cores);  // before MPI starts threads
#ifdef INGOT_HAS_MPI
  std::unique_ptr<World> world = mpi_world();
  if (world->ranks() == launch->ranks) return world;
  const std::string found = fmt::format("{} sees {}", mpi_library(), world->ranks());
  world.reset();
  throw Error(
      fmt::format("{} started {} ranks, but {}", launch->launcher, launch->ranks, found),
      "start it with the mpirun of the library that it was built with; under Slurm try srun --mpi=pmix");
#else
  throw Error(fmt::format("{} started {} ranks, but this program was built without MPI", launch->launcher,
                          launch->ranks),
              "build with -DINGOT_MPI=ON");
#endif
}

std::string mpi_name() {
#ifdef INGOT_HAS_MPI
  return mpi_library();
#else
  return "";
#endif
}

std::string default_mpirun() {
  return INGOT_MPIRUN;
}

std::string mpirun_version(const std::string& mpirun) {
  FILE* pipe = ::popen(("'" + mpirun + "' --version 2>&1").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char buffer[256];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  return ::pclose(pipe) == 0 ? text : "";
}

bool is_open_mpi(const std::string& version) {
  return version.find("Open MPI") != std::string::npos || version.find("OpenRTE") != std::string::npos;
}

}  // namespace ingot
