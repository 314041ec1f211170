// A rotary table for kernels of a GPU: its numbers where the thread's launches read them. Plain.
#pragma once
#include "device/gpu/launcher.h"
#include "ops/sequence/rotary.h"

namespace ingot {

inline RotaryTable on_gpu(RotaryTable table) {
  if (table.pairs == 0) return table;
  const int64_t numbers = RotaryTable::kSteps * 2 * table.pairs;
  table.coarse = gpu_constant(table.coarse, numbers);
  table.fine = gpu_constant(table.fine, numbers);
  return table;
}

}  // namespace ingot
