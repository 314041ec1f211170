// All ranks of a run, seen from one of them: its number, and its groups. Worlds: self (one rank, here),
// threads (comm/threads.h), and processes that a launcher started (comm/launch.h).
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

/// How long a rank waits for others, counted from the moment in which it has nothing else to do.
struct CommLimits {
  /// After this one warning per operation names the late ranks, and the flight record is written.
  double report_seconds = 30;
  /// After this the run ends; the default outlasts network outages of some minutes.
  double abort_seconds = 600;
};

class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// This rank's end of the named group over `members` (ascending, this rank among them). Every member calls
  /// it with the same list, and for its groups in the same order; it may wait for the others. A group of one
  /// rank is the self communicator. Groups must not outlive the world.
  virtual std::unique_ptr<Communicator> group(std::string name, const std::vector<int>& members) = 0;
  /// Runs this rank's part. Where ranks are processes, an exception that leaves it is printed with the rank
  /// and ends all of them; elsewhere it propagates to the caller.
  virtual void run(const std::function<void()>& part) { part(); }

  /// Apply to waits that begin afterwards.
  void set_limits(const CommLimits& limits) { limits_ = limits; }
  const CommLimits& limits() const { return limits_; }
  /// The training step that messages name; -1: outside of steps. Any thread may read it.
  void set_step(int64_t step) { step_ = step; }
  int64_t step() const { return step_; }

  /// The folder of flight-<rank>.json, which is written when a wait is late, when this rank fails, and on
  /// SIGTERM before a failure; the newest replaces it. Empty (default): nowhere.
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
