// See scenario.h.
#include "guard/scenario.h"

#include <iterator>

namespace ingot::guard {

namespace {

/// In the order of FaultKind.
constexpr FaultInfo kFaults[] = {{FaultKind::kill, "rank lost"},
                                 {FaultKind::node_lost, "node lost", true},
                                 {FaultKind::hang, "hang", true},
                                 {FaultKind::flap, "link flap", false, 70, 120},
                                 {FaultKind::nic, "completion queue error", true},
                                 {FaultKind::network_switch, "network switch", false, 2400},
                                 {FaultKind::memory_error, "memory error", true},
                                 {FaultKind::corrupt_once, "silent corruption"},
                                 {FaultKind::corrupt_often, "silent corruption", true},
                                 {FaultKind::slow, "straggler", true},
                                 {FaultKind::drift, "straggler", true},
                                 {FaultKind::throttle, "throttled", true},
                                 {FaultKind::slow_storage, "data wait", false, 2700},
                                 {FaultKind::disk_full, "storage full"},
                                 {FaultKind::storage_gone, "storage failure"},
                                 {FaultKind::damaged_checkpoint, "rank lost"},
                                 {FaultKind::configuration, "configuration"},
                                 {FaultKind::bug, "bug"},
                                 {FaultKind::bad_batch, "divergence"},
                                 {FaultKind::not_finite, "not finite"},
                                 {FaultKind::empty_node, "node without data", true},
                                 {FaultKind::out_of_memory, "out of memory"},
                                 {FaultKind::preempted, "preempted", false, 1200},
                                 {FaultKind::dips, "dips", false, 10'800},
                                 {FaultKind::slow_transport, "slow transport", false, 10'800},
                                 {FaultKind::clock_jump, "clock jump"},
                                 {FaultKind::no_checkpoint, "checkpoint too old"},
                                 {FaultKind::guard_killed, ""}};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kFaults); ++i)
    if (kFaults[i].kind != static_cast<FaultKind>(i)) return false;
  return std::size(kFaults) == enum_count<FaultKind>;
}
static_assert(in_order());

}  // namespace

const FaultInfo& info_of(FaultKind kind) {
  return kFaults[static_cast<size_t>(kind)];
}

}  // namespace ingot::guard
