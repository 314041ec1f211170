// One rank of a training run in which one rank fails in a part of a step (support/killer.h):
//   run_fault_program FAULT PHASE NUMBER STEP VICTIM FOLDER REPORT_SECONDS ABORT_SECONDS RECIPE OVERRIDES...
// From STEP on the events of PHASE are counted. NUMBER may be a fraction of those in the step before, as 7/8
// (forward and backward only). Each rank leaves its process id in FOLDER, the victim the time of the fault in
// FOLDER/struck.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/log.h"
#include "comm/launch.h"
#include "support/killer.h"
#include "tape/op.h"

namespace ingot {
namespace {

/// Arms the killer when the step begins.
class FromStep final : public RunObserver {
 public:
  FromStep(test::Killer& killer, int64_t step, std::string phase, const std::string& number)
      : killer_(killer), observer_(killer), step_(step), phase_(std::move(phase)) {
    if (const size_t slash = number.find('/'); slash != number.npos) {
      part_ = std::atoll(number.c_str());
      of_ = std::atoll(number.c_str() + slash + 1);
    }
  }
  void enters(StepPart phase) override {
    if (phase == StepPart::data) begin_step();
    observer_.enters(phase);
  }
  void tensor(const std::string& name, const Tensor& value) override {
    events_ += test::KillObserver::phase_of(name) == phase_;
    observer_.tensor(name, value);
  }

 private:
  void begin_step() {
    if (--step_ == 0) {
      if (of_ > 0) killer_.choose(events_ * part_ / of_);
      killer_.arm();
    }
    events_ = 0;
  }
  test::Killer& killer_;
  test::KillObserver observer_;
  int64_t step_, events_ = 0, part_ = 0, of_ = 0;
  std::string phase_;
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
  test::Killer killer({victim ? argv[2] : "none", std::atoll(argv[3]), 0, argv[1], folder + "/struck"},
                      false);
  test::KillFs files(killer);
  FromStep observer(killer, std::atoll(argv[4]), argv[2], argv[3]);
  world->run([&] {
    const Recipe recipe = load_recipe(argv[9], {argv + 10, argv + argc});
    Trainer trainer(files, recipe, StartMode::resume_or_start, world.get());
    trainer.observe(&observer);
    trainer.run();
  });
  return 0;
}
