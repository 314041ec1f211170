// One rank of a program in which rank 1 fails: fault_program FAULT COLLECTIVE FOLDER REPORT_SECONDS
// ABORT_SECONDS. All ranks run six steps of every collective; in step 3, just before the named one ("group":
// before any), rank 1 is killed, stops, is late, throws, does something else, returns, or drops its
// operation. Each rank leaves its process id in FOLDER.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "comm/launch.h"

namespace ingot {
namespace {

constexpr int kVictim = 1, kFaultStep = 3, kSteps = 6;
constexpr int64_t kRows = 30000;  // in chunks, not in the first message

const CommKind kKinds[] = {CommKind::all_reduce, CommKind::reduce_scatter, CommKind::all_gather,
                           CommKind::broadcast,  CommKind::all_to_all,     CommKind::barrier,
                           CommKind::send_recv};

struct Returns {};

void go_wrong_alone(const std::string& fault) {
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "delay") std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  if (fault == "throw") throw Error("the disk is full", "free some space");
  if (fault == "return") throw Returns{};
}

void go_wrong(const std::string& fault, Communicator& group, Tensor t) {
  go_wrong_alone(fault);
  if (fault == "mismatch") group.all_reduce(t.slice(0, 7), t.slice(0, 7)).wait();
  if (fault == "drop") const Pending dropped = group.recv(t, 0);  // which rank 0 never sends
}

void collective(Communicator& c, CommKind kind, std::vector<float>& narrow, std::vector<float>& wide) {
  const int n = c.size();
  const Tensor x = Tensor::of(narrow.data(), {kRows}), all = Tensor::of(wide.data(), {n * kRows});
  const std::vector<int64_t> rows(static_cast<size_t>(n), kRows);
  switch (kind) {
    case CommKind::all_reduce:
      return c.all_reduce(x, x).wait();
    case CommKind::reduce_scatter:
      return c.reduce_scatter(all, x).wait();
    case CommKind::all_gather:
      return c.all_gather(x, all).wait();
    case CommKind::broadcast:
      return c.broadcast(x, kVictim).wait();
    case CommKind::all_to_all: {
      std::vector<float> out(wide.size());
      return c.all_to_all(all, rows, Tensor::of(out.data(), {n * kRows}), rows).wait();
    }
    case CommKind::barrier:
      return c.barrier();
    case CommKind::send_recv:
      if (c.rank() == kVictim) return c.send(x, 0).wait();
      if (c.rank() == 0) c.recv(x, kVictim).wait();
      return;
  }
}

void perform(World& world, const std::string& fault, const std::string& where) {
  std::vector<int> everyone;
  for (int r = 0; r < world.ranks(); ++r) everyone.push_back(r);
  if (where == "group" && world.rank() == kVictim) go_wrong_alone(fault);
  const auto group = world.group("all", everyone);
  std::vector<float> narrow(kRows), wide(narrow.size() * everyone.size());
  for (int64_t step = 0; step < kSteps; ++step) {
    world.set_step(step);
    for (const CommKind kind : kKinds) {
      if (step == kFaultStep && world.rank() == kVictim && where == name_of(kind))
        go_wrong(fault, *group, Tensor::of(narrow.data(), {kRows}));
      collective(*group, kind, narrow, wide);
    }
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using namespace ingot;
  if (argc != 6) return 3;
  const auto world = launch_world();
  const std::string folder = argv[3];
  std::ofstream(folder + "/pid-" + std::to_string(world->rank())) << ::getpid() << "\n";
  world->set_limits({std::atof(argv[4]), std::atof(argv[5])});
  world->set_flight_folder(folder);
  world->run([&] {
    try {
      perform(*world, argv[1], argv[2]);
    } catch (const Returns&) {
      world->set_step(-1);
    }
  });
  if (world->rank() == 0) std::cout << "all steps done\n";
  return 0;
}
