// Main function of the tests that run as ranks: mpirun -n 3 ingot_test_mpi. Every rank runs the same tests in
// the same order; only rank 0 prints what passes.
#include <gtest/gtest.h>

#include "comm/launch.h"
#include "mpi/this_world.h"

namespace ingot::test {

World& this_world() {
  static const std::unique_ptr<World> world = launch_world();
  return *world;
}

}  // namespace ingot::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (ingot::test::this_world().rank() > 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new ingot::test::FailuresOnly);
  }
  int code = 1;
  ingot::test::this_world().run([&] { code = RUN_ALL_TESTS(); });
  return code;
}
