// A device whose memory host code cannot touch, on any machine. Its addresses are reserved without memory
// behind them; the bytes lie elsewhere and are reached by copies alone. So whatever reads or writes a
// device's tensor on the host ends the program, which says the tensor, the op and the slot. New memory, and
// what an arena took back, holds bytes 0xff: NaN in every floating type.
//
// Its streams find what a GPU's would only sometimes show: a stream that does not wait for what another one
// does with the same memory, a buffer that is given back while a stream still uses it, and work on a buffer
// that was given back. Each is an InternalError that names the memory, whatever order the work runs in.
#pragma once
#include "device/device.h"

namespace ingot {

Device& sim_device();

/// When the work of streams runs: as soon as it is asked for, or late and in an order among the streams that
/// the seed decides, as far as their waits leave it open.
struct SimOrder {
  bool late = false;
  uint64_t seed = 0;
};
/// Of the process: ordered, or what INGOT_SIM=async,SEED says. Runs first what the streams still hold.
void set_sim_order(const SimOrder& order);
/// The order that a text names: "ordered" or "async,SEED". Error for another.
SimOrder sim_order_of(const std::string& text);

}  // namespace ingot
