// A scenario of the simulated cluster: machines, a job, faults planned and random. A TOML file, or made by
// the suite that tests the shipped rules.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "guard/observation.h"

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

/// What a job does.
enum class Phase : uint8_t { none, waiting, starting, loading, training, ended };

/// How a fault ends a job.
struct JobEnd {
  FailureKind kind = FailureKind::none;  ///< none: it does not
  const char* line = "";                 ///< the job's last words; {} is the node
  Phase since = Phase::starting;         ///< it strikes from there on
  bool once = false;                     ///< it is over then
  int exit_code = 1;
};

struct FaultInfo {
  const char* name;
  const char* rule;      ///< of recipes/guard-rules.toml that is right; empty: none is needed
  bool of_node = false;  ///< so that leaving the node out mends it
  JobEnd end = {};
  double speed = 1;                      ///< of the job while it trains; 0: it stalls
  double least_seconds = 0, spread = 0;  ///< of one that passes by itself
};

/// In the order of FaultKind.
constexpr auto fault_table() {
  using enum FailureKind;
  return std::to_array<FaultInfo>(
      {{"kill", "rank lost", false, {lost, "rank 3 ended without a word", Phase::starting, true}},
       {"node_lost", "node lost", true, {lost, "the connection to {} is gone"}},
       {"hang", "hang", true, {}, 0},
       {"flap", "link flap", false, {}, 0, 70, 120},
       {"nic", "completion queue error", true, {lost, "completion queue error (CQE status 12) at {}"}},
       {"network_switch", "network switch", false, {}, 0, 2400},
       {"memory_error",
        "memory error",
        true,
        {unknown, "uncorrectable ECC error at {}", Phase::starting, false, -1}},
       {"corrupt_once", "silent corruption"},
       {"corrupt_often", "silent corruption", true},
       {"slow", "straggler", true, {}, 2.0 / 3},
       {"drift", "straggler", true},
       {"throttle", "throttled", true, {}, 0.75},
       {"slow_storage", "data wait", false, {}, 0.5, 2700},
       {"disk_full",
        "storage full",
        false,
        {storage, "3 checkpoints in a row were not written: no space left", Phase::training}},
       {"storage_gone", "storage failure", false, {storage, "cannot read: stale file handle"}},
       {"damaged_checkpoint",
        "rank lost",
        false,
        {lost, "rank 5 ended without a word", Phase::training, true}},
       {"configuration", "configuration", false, {config, "the recipe has 1 error"}},
       {"bug", "bug", false, {bug, "internal error", Phase::training, false, 3}},
       {"bad_batch",
        "divergence",
        false,
        {diverged, "the loss has been far above its mean", Phase::training}},
       {"not_finite", "not finite", false, {not_finite, "the loss is nan", Phase::training, true}},
       {"empty_node", "node without data", true, {storage, "no such file: shard-00012", Phase::loading}},
       {"out_of_memory", "out of memory", false, {memory, "out of memory", Phase::training, true, -1}},
       {"preempted",
        "preempted",
        false,
        {signal, "interrupted, saved", Phase::starting, false, 130},
        1,
        1200},
       {"dips", "dips", false, {}, 1, 10'800},
       {"slow_transport", "slow transport", false, {}, 0.6, 10'800},
       {"clock_jump", "clock jump"},
       {"no_checkpoint", "checkpoint too old"},
       {"guard_killed", ""}});
}
inline constexpr auto kFaults = fault_table();

constexpr auto enum_names(FaultKind) {
  std::array<EnumName<FaultKind>, kFaults.size()> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = {static_cast<FaultKind>(i), kFaults[i].name};
  return names;
}
constexpr const FaultInfo& info_of(FaultKind kind) {
  return kFaults[static_cast<size_t>(kind)];
}

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
