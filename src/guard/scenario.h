// A scenario of the simulated cluster: machines, a job, faults planned and random. A TOML file, or made by
// the suite that tests the shipped rules.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"

namespace ingot::guard {

enum class FaultKind : uint8_t {
  kill,                ///< a rank's process ends
  node_lost,           ///< a node ends, with its ranks
  hang,                ///< a rank stops for ever
  flap,                ///< a link is gone for one to three minutes
  nic,                 ///< a network card fails for good
  network_switch,      ///< the links of several nodes fail
  memory_error,        ///< uncorrected
  corrupt_once,        ///< wrong bits once, seen by digests
  corrupt_often,       ///< wrong bits again and again
  slow,                ///< a node computes at two thirds of its speed
  drift,               ///< a node becomes slower and slower
  throttle,            ///< a node lowers its clock
  slow_storage,        ///< the data loader starves
  disk_full,           ///< and no checkpoint can be written
  storage_gone,        ///< the shared file system answers no more
  damaged_checkpoint,  ///< the newest one; then the job ends
  configuration,       ///< no start can work
  bug,                 ///< ends at the same step every time
  bad_batch,           ///< diverges at the same step every time
  not_finite,          ///< once
  empty_node,          ///< a node without the training data
  out_of_memory,       ///< once
  preempted,           ///< the batch system takes the nodes for a while
  dips,                ///< speed falls and recovers, more and more often
  slow_transport,      ///< messages take a slow way
  clock_jump,          ///< the wall clock is set by an hour
  no_checkpoint,       ///< saves never complete
  guard_killed         ///< the guard itself
};
constexpr auto enum_names(FaultKind) {
  return names_in_order<FaultKind>(
      "kill", "node_lost", "hang", "flap", "nic", "network_switch", "memory_error", "corrupt_once",
      "corrupt_often", "slow", "drift", "throttle", "slow_storage", "disk_full", "storage_gone",
      "damaged_checkpoint", "configuration", "bug", "bad_batch", "not_finite", "empty_node", "out_of_memory",
      "preempted", "dips", "slow_transport", "clock_jump", "no_checkpoint", "guard_killed");
}

struct FaultInfo {
  FaultKind kind;
  const char* rule;                      ///< of recipes/guard-rules.toml that is right; empty: none is needed
  bool of_node = false;                  ///< so that leaving the node out mends it
  double least_seconds = 0, spread = 0;  ///< of one that passes by itself
  /// How long it lasts, for `uniform` from 0 to 1; 0: it does not pass.
  double lasts_seconds(double uniform) const { return least_seconds + spread * uniform; }
};
/// Row of a fault; every FaultKind has one.
const FaultInfo& info_of(FaultKind kind);

struct PlannedFault {
  FaultKind kind = FaultKind::kill;
  double at = 0;
  int64_t node = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind, "what happens");
    v("at", at, "when, in seconds since the guard began", up_to(1e12, "s"));
    v("node", node, "where", up_to(1e6));
  }
};

struct FaultShare {
  FaultKind kind = FaultKind::kill;
  double share = 1;
  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind, "of random faults");
    v("share", share, "of all random faults, relative to the others", positive(1e6));
  }
};

struct Scenario {
  std::string name = "scenario";
  int64_t nodes = 16, spares = 4, devices = 8, seed = 1;
  double hours = 24, step_seconds = 10, checkpoint_every = 300, checkpoint_pause = 1;
  double start_seconds = 60, load_seconds = 120, deadline = 600, burn_in_seconds = 60;
  double person_minutes = 30, mend_minutes = 60, repair_hours = 24, poll = 5;
  double device_hours_per_fault = 0;
  int64_t nodes_per_day = 8, idle_restarts = 3;
  std::vector<FaultShare> shares;
  std::vector<PlannedFault> faults;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "for tables");
    v("nodes", nodes, "that the job uses", between(1, 100'000));
    v("spares", spares, "more nodes, with data", up_to(100'000));
    v("devices", devices, "of a node", between(1, 1024));
    v("seed", seed, "of what is random", up_to(1e15));
    v("hours", hours, "simulated", positive(1e7, "h"));
    v("step_seconds", step_seconds, "of a step of healthy nodes", between(0.01, 1e5, "s"));
    v("checkpoint_every", checkpoint_every, "training between two checkpoints", between(1, 1e6, "s"));
    v("checkpoint_pause", checkpoint_pause, "of training for one", up_to(1e5, "s"));
    v("start_seconds", start_seconds, "until the job's processes run", up_to(1e6, "s"));
    v("load_seconds", load_seconds, "until they train", up_to(1e6, "s"));
    v("deadline", deadline, "after which ranks that wait end the job", between(1, 1e6, "s"));
    v("burn_in_seconds", burn_in_seconds, "of a test of suspects", up_to(1e6, "s"));
    v("person_minutes", person_minutes, "until a person has mended what is asked", up_to(1e6, "min"));
    v("mend_minutes", mend_minutes, "until a person mends a faulty node that stays in use",
      up_to(1e6, "min"));
    v("repair_hours", repair_hours, "until an excluded node is a spare again", up_to(1e6, "h"));
    v("poll", poll, "between two looks while anything is unusual", between(0.1, 1e4, "s"));
    v("device_hours_per_fault", device_hours_per_fault, "random faults; 0: none", zero_or(1, 1e12, "h"));
    v("nodes_per_day", nodes_per_day, "that the guard may exclude alone", up_to(1e6));
    v("idle_restarts", idle_restarts, "restarts in a row without a new step, then a person", up_to(1e6));
    v("shares", shares, "kinds of random faults");
    v("faults", faults, "planned ones");
  }
  void validate(ConfigErrors& errors) const {
    if (device_hours_per_fault > 0 && shares.empty())
      errors.add("shares", "random faults need kinds: [[shares]] kind = \"kill\"");
  }
};

}  // namespace ingot::guard
