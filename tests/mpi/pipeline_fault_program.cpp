// A stage of a pipeline of three in which the middle one goes wrong: pipeline_fault_program FAULT PHASE FOLDER REPORT_SECONDS
// ABORT_SECONDS. Four steps of eight micro-batches (1F1B); in step 3, in the phase "warm-up" (the forward before the first
// backward), "steady" (a forward of the middle) or "cool-down" (the last backward), rank 1 is killed, stops or is late. Each rank leaves its
// process id in FOLDER.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "comm/launch.h"
#include "support/parity.h"

namespace ingot::test {
namespace {

constexpr int kVictim = 1, kStages = 3, kSteps = 4, kMicroBatches = 8;

void go_wrong(const std::string& fault) {
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "delay") std::this_thread::sleep_for(std::chrono::milliseconds(1200));
}

/// Counts what backward writes: the last micro-batch's begins after seven eighths of a step.
class BackwardCount final : public TapeObserver {
 public:
  int64_t of_step = 0, strike_at = -1;
  std::string fault;
  void tensor(const std::string& name, const Tensor&) override {
    if (name.find(".d_") == std::string::npos) return;
    if (of_step++ == strike_at) go_wrong(fault);
  }
};

void run(World& world, const std::string& fault, const std::string& phase) {
  const OneRank one({.model = "llama", .layers = kStages, .rows = kMicroBatches});
  const Grid grid({.pp = kStages});
  const GroupMaker make = [&](std::string name, const std::vector<int>& members) { return world.group(std::move(name), members); };
  const ParameterTable& table = one.decoder.table();
  const RankGroups groups(grid, world.rank(), make, {});
  const PipelineGroups pipe(grid, world.rank(), make, even_pipeline_layout(kStages, 1, kStages, 0), table);
  const Placement placement = pipe.placement(groups.placement());
  WeightSet weights(table, placement, Precision::f64());
  one.give_weights(weights);
  GradientBuffer buffer(table, placement, DType::f64);
  const PipelineShape shape{kStages, 1, kMicroBatches, 0};
  const Pipeline pipeline(one.decoder, weights.precision(), pipe,
                          make_pipeline_schedule(PipelineScheduleKind::one_forward_one_backward, shape));
  BackwardCount backward;
  backward.fault = fault;
  for (int64_t step = 1; step <= kSteps; ++step) {
    world.set_step(step);
    const bool strikes = step == 3 && world.rank() == kVictim;
    if (strikes && phase == "cool-down") backward.strike_at = backward.of_step * (kMicroBatches - 1) / kMicroBatches;
    backward.of_step = 0;
    const int struck_forward = phase == "warm-up" ? 0 : phase == "steady" ? kMicroBatches / 2 : -1;
    ParityOutcome outcome;
    TapeOptions options = parity_tape(one.problem, &buffer);
    options.observer = &backward;
    HeapArena arena;
    buffer.begin_step();
    pipeline.run(
        [&](Tape& tape, int b) {
          if (strikes && b == struck_forward) go_wrong(fault);
          return std::make_unique<ParityStep>(one.decoder, one.inputs, weights, tape, b, 1, &groups, outcome);
        },
        kParityLength, options, arena);
    buffer.finish_step();
    pipe.sum_shared(buffer);
  }
}

}  // namespace
}  // namespace ingot::test

int main(int argc, char** argv) {
  using namespace ingot;
  if (argc != 6) return 3;
  const auto world = launch_world();
  const std::string folder = argv[3];
  std::ofstream(folder + "/pid-" + std::to_string(world->rank())) << ::getpid() << "\n";
  world->set_limits({std::atof(argv[4]), std::atof(argv[5])});
  world->set_flight_folder(folder);
  world->run([&] { test::run(*world, argv[1], argv[2]); });
  if (world->rank() == 0) std::cout << "all steps done\n";
  return 0;
}
