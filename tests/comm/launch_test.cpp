// The world of a process: alone without a launcher's variables, and an error where ranks could not join;
// cores by rank.
#include "comm/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace ingot::launch_test {

/// Removes every variable that comm/launch reads, sets some, and restores all.
class Launched {
 public:
  explicit Launched(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name : kNames) {
      const char* old = std::getenv(name);
      old_.push_back(old ? std::optional<std::string>(old) : std::nullopt);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
  ~Launched() {
    for (size_t i = 0; i < std::size(kNames); ++i)
      old_[i] ? ::setenv(kNames[i], old_[i]->c_str(), 1) : ::unsetenv(kNames[i]);
  }

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMI_SIZE",
                                           "PMI_RANK",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_PROCID",
                                           "SLURM_LOCALID",
                                           "WORLD_SIZE",
                                           "RANK",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "INGOT_CORES"};
  std::vector<std::optional<std::string>> old_;
};

/// The message of the Error that find_launch() throws; empty: none.
std::string refusal() {
  try {
    find_launch();
    return "";
  } catch (const Error& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
}

TEST(Launch, ReadsTheLaunchersVariables) {
  using Names = std::pair<const char*, const char*>;
  for (const auto& [size, rank] :
       {Names{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, Names{"PMI_SIZE", "PMI_RANK"},
        Names{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}}) {
    const Launched environment{{size, "4"}, {rank, "3"}};
    const std::optional<Launch> launch = find_launch();
    ASSERT_TRUE(launch) << size;
    EXPECT_EQ(launch->ranks, 4) << size;
    EXPECT_EQ(launch->rank, 3) << rank;
  }
  const Launched one{{"OMPI_COMM_WORLD_SIZE", "1"}};
  EXPECT_FALSE(find_launch());
}

TEST(Launch, ALauncherWithoutMpiIsRefused) {
  const Launched environment{{"WORLD_SIZE", "8"}, {"RANK", "0"}};
  EXPECT_NE(refusal().find("one of 8 ranks (WORLD_SIZE), but no MPI launcher has started it"),
            std::string::npos)
      << refusal();
  EXPECT_NE(refusal().find("ingot launch -n 8 -- COMMAND"), std::string::npos) << refusal();
  const Launched alone{{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}};
  EXPECT_FALSE(find_launch()) << "torchrun may start one rank";
}

TEST(Launch, TorchrunsVariablesMayBesideMpiSayTheSame) {
  const Launched same{{"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                      {"WORLD_SIZE", "4"},
                      {"RANK", "2"},
                      {"LOCAL_RANK", "0"},
                      {"LOCAL_WORLD_SIZE", "2"}};
  ASSERT_TRUE(find_launch());
  EXPECT_EQ(find_launch()->rank, 2);
  for (const auto& [name, other] : {std::pair{"WORLD_SIZE", "8"}, {"RANK", "1"}, {"LOCAL_RANK", "1"}}) {
    const Launched different{{"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_RANK", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {name, other}};
    EXPECT_NE(refusal().find(fmt::format("{}={}", name, other)), std::string::npos) << refusal();
  }
  const Launched on_node{
      {"PMI_SIZE", "4"}, {"PMI_RANK", "2"}, {"MPI_LOCALNRANKS", "2"}, {"LOCAL_WORLD_SIZE", "4"}};
  EXPECT_NE(refusal().find("mpirun (MPICH) has set MPI_LOCALNRANKS=2, but LOCAL_WORLD_SIZE=4"),
            std::string::npos)
      << refusal();
}

TEST(Launch, EveryRankFindsItsCores) {
  const Launch launch{"srun", 2, 1};
  const Launched none{};
  EXPECT_TRUE(cores_of(launch).empty());
  const Launched two{{"INGOT_CORES", "0-3;4,6"}};
  EXPECT_EQ(cores_of(launch), (std::vector<int>{4, 6}));
  EXPECT_THROW(cores_of({"srun", 3, 1}), Error);
  EXPECT_THROW(cores_of({"srun", 2, -1}), Error);
  const Launched bad{{"INGOT_CORES", "0-3;x"}};
  EXPECT_THROW(cores_of(launch), Error);
}

TEST(Launch, AloneIsAWorldOfOneRank) {
  const Launched environment{};
  const std::unique_ptr<World> world = launch_world();
  EXPECT_EQ(world->ranks(), 1);
  std::vector<double> x{3};
  const Tensor t = Tensor::of(x.data(), {1});
  const auto group = world->group("all", {0});
  group->all_reduce(t, t).wait();
  EXPECT_EQ(x[0], 3);
}

}  // namespace ingot::launch_test
