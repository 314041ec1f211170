// All ranks of a run as one of them sees them: who it is, and how it gets its groups. Worlds: self (one rank, here),
// threads (comm/threads.h), and what the launcher started (comm/launch.h).
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/flight_recorder.h"

namespace ingot {

/// How long a rank waits for others. Counted from the moment in which it has nothing else to do.
struct CommLimits {
  double report_seconds =
      30;  ///< then one warning per operation names who is late, and the flight record is written
  double abort_seconds = 600;  ///< then the run ends; the default outlasts network flaps of some minutes
};

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
  /// Runs this rank's part. Where ranks are processes, an exception that leaves it is printed with the rank and ends all
  /// of them; elsewhere it goes on to the caller.
  virtual void run(const std::function<void()>& part) { part(); }

  /// Hold for waits that begin afterwards.
  void set_limits(const CommLimits& limits) { limits_ = limits; }
  const CommLimits& limits() const { return limits_; }
  /// The training step that messages name; -1: outside of steps. Any thread may read it.
  void set_step(int64_t step) { step_ = step; }
  int64_t step() const { return step_; }

  /// Where flight-<rank>.json is written when a wait is late, when this rank fails, and when it is told to end (SIGTERM)
  /// before it has failed; the last one stays. Empty (default): nowhere.
  void set_flight_folder(std::string folder);
  FlightRecorder& flight() { return flight_; }
  /// Any thread. A failure to write is logged, not thrown: it must not hide what went wrong before.
  void write_flight(const std::string& reason) const;

 protected:
  World(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

 private:
  const int rank_, ranks_;
  CommLimits limits_;
  std::atomic<int64_t> step_ = -1;
  FlightRecorder flight_;
  mutable std::mutex folder_mutex_;
  std::string flight_folder_;  // guarded by folder_mutex_
};

/// The world of one rank.
std::unique_ptr<World> self_world();

}  // namespace ingot
