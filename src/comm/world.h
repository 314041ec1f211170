// All ranks of a run as one of them sees them: who it is, and how it gets its groups. Worlds: self (one rank, here),
// threads (comm/threads.h), and what the launcher started (comm/launch.h).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ingot {

class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// This rank's end of the group with that name over these ranks (ascending, this one among them). Every member asks
  /// with the same list, and for its groups in the same order; it may wait for the others. One rank alone gets the self
  /// communicator. Groups must not outlive the world.
  virtual std::unique_ptr<Communicator> group(std::string name, const std::vector<int>& members) = 0;

 protected:
  World(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

 private:
  int rank_, ranks_;
};

/// The world of one rank.
std::unique_ptr<World> self_world();

}  // namespace ingot
