// The world of a process: alone without a launcher's variables, and an error where ranks could not join.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/launch.h"

namespace ingot {
namespace {

/// Removes every variable that find_launch() reads, sets one, and puts all back.
class Launched {
 public:
  explicit Launched(const char* variable, const char* value) {
    for (const char* name : kNames) {
      const char* old = std::getenv(name);
      old_.push_back(old ? std::optional<std::string>(old) : std::nullopt);
      ::unsetenv(name);
    }
    if (variable) ::setenv(variable, value, 1);
    ::setenv("RANK", "0", 1);
  }
  ~Launched() {
    for (size_t i = 0; i < std::size(kNames); ++i)
      old_[i] ? ::setenv(kNames[i], old_[i]->c_str(), 1) : ::unsetenv(kNames[i]);
  }

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE", "RANK"};
  std::vector<std::optional<std::string>> old_;
};

TEST(Launch, ReadsTheLaunchersVariables) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const Launched environment(variable, "4");
    const std::optional<Launch> launch = find_launch();
    ASSERT_TRUE(launch) << variable;
    EXPECT_EQ(launch->ranks, 4) << variable;
  }
  const Launched one("OMPI_COMM_WORLD_SIZE", "1");
  EXPECT_FALSE(find_launch());
}

TEST(Launch, ALauncherWithoutMpiIsRefused) {
  const Launched environment("WORLD_SIZE", "8");
  EXPECT_THROW(find_launch(), Error);
}

TEST(Launch, AloneIsAWorldOfOneRank) {
  const Launched environment(nullptr, nullptr);
  const std::unique_ptr<World> world = launch_world();
  EXPECT_EQ(world->ranks(), 1);
  std::vector<double> x{3};
  const Tensor t = Tensor::of(x.data(), {1});
  const auto group = world->group("all", {0});
  group->all_reduce(t, t).wait();
  EXPECT_EQ(x[0], 3);
}

}  // namespace
}  // namespace ingot
