// See scenario.h.
#include "guard/scenario.h"

namespace ingot::guard {

bool of_node(FaultKind kind) {
  using enum FaultKind;
  switch (kind) {
    case node_lost:
    case hang:
    case nic:
    case memory_error:
    case corrupt_often:
    case slow:
    case drift:
    case throttle:
    case empty_node:
      return true;
    default:
      return false;
  }
}

double lasts_seconds(FaultKind kind, double uniform) {
  using enum FaultKind;
  switch (kind) {
    case flap:
      return 70 + 120 * uniform;
    case network_switch:
      return 2400;
    case slow_storage:
      return 2700;
    case preempted:
      return 1200;
    case dips:
    case slow_transport:
      return 10'800;
    default:
      return 0;
  }
}

std::string right_rule(FaultKind kind) {
  using enum FaultKind;
  switch (kind) {
    case kill:
    case damaged_checkpoint:
      return "rank lost";
    case node_lost:
      return "node lost";
    case hang:
      return "hang";
    case flap:
      return "link flap";
    case nic:
      return "completion queue error";
    case network_switch:
      return "network switch";
    case memory_error:
      return "memory error";
    case corrupt_once:
    case corrupt_often:
      return "silent corruption";
    case slow:
    case drift:
      return "straggler";
    case throttle:
      return "throttled";
    case slow_storage:
      return "data wait";
    case disk_full:
      return "storage full";
    case storage_gone:
      return "storage failure";
    case configuration:
      return "configuration";
    case bug:
      return "bug";
    case bad_batch:
      return "divergence";
    case not_finite:
      return "not finite";
    case empty_node:
      return "node without data";
    case out_of_memory:
      return "out of memory";
    case preempted:
      return "preempted";
    case dips:
      return "dips";
    case slow_transport:
      return "slow transport";
    case clock_jump:
      return "clock jump";
    case no_checkpoint:
      return "checkpoint too old";
    case guard_killed:
      return "";
  }
  return "";
}

}  // namespace ingot::guard
