// The last operations of a rank by group, and how far each came: read after a run ended because some rank did
// not arrive. One file per rank; the first operation of a group that is not in the same state on all ranks is
// where the run broke.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/enum.h"
#include "comm/communicator.h"

namespace ingot {

/// One operation of one rank of a group.
struct Operation {
  CommKind kind = CommKind::barrier;
  TensorMeta in, out;
  int64_t number = 0;  ///< of the collective in its group, or of the message between two ranks
  int64_t step = -1;   ///< training step; -1: none
  int peer = -1;       ///< of a message, in the group; -1: a collective
  bool sends = false;
  /// "all_reduce f32[4] -> f32[4] #3 of group 'data' at step 7"
  std::string str(const std::string& group) const;
};

enum class FlightState : uint8_t { started, waiting, complete, failed };
constexpr auto enum_names(FlightState) {
  return names_in_order<FlightState>("started", "waiting", "complete", "failed");
}

class FlightRecorder {
 public:
  static constexpr size_t kKept = 64;  ///< operations of each group
  struct Ticket {
    size_t group = 0;
    int64_t index = 0;
  };

  size_t add_group(const std::string& name, const std::vector<int>& members);
  Ticket begin(size_t group, const Operation& operation);
  void mark(Ticket ticket, FlightState state);
  /// {"format": 1, "rank", "ranks", "reason", "step", "time", "groups": [{"name", "members", "operations":
  /// [{"number", "operation", "step", "state", "started", "waited", "ended"}]}]}; oldest first, times in
  /// seconds since 1970, null where a state was not reached.
  std::string json(int rank, int ranks, int64_t step, const std::string& reason) const;

 private:
  struct Entry {
    Operation operation;
    FlightState state = FlightState::started;
    double started = 0, waited = 0, ended = 0;
  };
  struct Group {
    std::string name;
    std::vector<int> members;
    std::deque<Entry> entries;
    int64_t first = 0;  ///< index of the oldest kept
  };
  mutable std::mutex mutex_;
  std::vector<Group> groups_;
};

}  // namespace ingot
