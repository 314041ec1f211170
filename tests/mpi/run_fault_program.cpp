// A rank of a training run in which one rank goes wrong in a phase of a step (support/killer.h):
// run_fault_program FAULT PHASE NUMBER STEP VICTIM FOLDER REPORT_SECONDS ABORT_SECONDS RECIPE OVERRIDES... From STEP on the events
// of the phase count. Each rank leaves its process id in FOLDER, the victim the time of the fault in FOLDER/struck.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/log.h"
#include "comm/launch.h"
#include "ops/op.h"
#include "support/killer.h"

namespace ingot {
namespace {

/// Arms the killer when the step begins.
class FromStep final : public RunObserver {
 public:
  FromStep(test::Killer& killer, int64_t step) : killer_(killer), observer_(killer), step_(step) {}
  void enters(RunPhase phase) override {
    if (phase == RunPhase::data && --step_ == 0) killer_.arm();
    observer_.enters(phase);
  }
  void tensor(const std::string& name, const Tensor& value) override { observer_.tensor(name, value); }

 private:
  test::Killer& killer_;
  test::KillObserver observer_;
  int64_t step_;
};

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using namespace ingot;
  if (argc < 10) return 3;
  const auto world = launch_world();
  const std::string folder = argv[6];
  std::ofstream(folder + "/pid-" + std::to_string(world->rank())) << ::getpid() << "\n";
  world->set_limits({std::atof(argv[7]), std::atof(argv[8])});
  log::set_rank(world->rank());
  set_kernel_policy(KernelPolicy::any);
  const bool victim = world->rank() == std::atoi(argv[5]);
  test::Killer killer({victim ? argv[2] : "none", std::atoll(argv[3]), 0, argv[1], folder + "/struck"}, false);
  test::KillFs files(killer);
  FromStep observer(killer, std::atoll(argv[4]));
  world->run([&] {
    const Recipe recipe = load_recipe(argv[9], {argv + 10, argv + argc});
    Trainer trainer(files, recipe, StartMode::resume_or_start, world.get());
    trainer.observe(&observer);
    trainer.run();
  });
  return 0;
}
