// A device whose memory host code cannot touch, on any machine. Its addresses are reserved without memory
// behind them; the bytes lie elsewhere and are reached by upload() and download() alone. So whatever reads or
// writes a device's tensor on the host ends the program, which says the tensor, the op and the slot. New
// memory holds bytes 0xff: NaN in every floating type.
#pragma once
#include "device/device.h"

namespace ingot {

Device& sim_device();

}  // namespace ingot
