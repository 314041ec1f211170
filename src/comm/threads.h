// Ranks as threads of one process: how most parallel tests run, on any machine. The kernels of each rank run
// inline. The last rank to start a collective executes it for all, so the order of waits does not matter.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"

namespace ingot {

class ThreadWorld;

/// The world of one such rank. group() does not wait for the other members.
class ThreadRank final : public World {
 public:
  ThreadRank(ThreadWorld& world, int rank, int ranks) : World(rank, ranks), world_(world) {}
  std::unique_ptr<Communicator> group(std::string name, const std::vector<int>& members) override;

 private:
  ThreadWorld& world_;
};

/// Runs fn on `ranks` threads and returns when all have ended. If one throws, the waits of the others fail
/// with an Error that names it, and its exception is rethrown here. A rank that waits for one that has
/// returned fails at once. deadline_seconds: the initial limits().abort_seconds of each rank.
void run_ranks(int ranks, const std::function<void(ThreadRank&)>& fn, double deadline_seconds = 120);

}  // namespace ingot
