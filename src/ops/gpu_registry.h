// The kernels of GPUs, by op. Each is a file *.cu in its op's folder, which the emulator runs on the
// simulated device (device/gpu/emulator.h), and gpu.cpp, from tensors to its launches. They are exact: they
// have the CPU's bits.
#pragma once
#include <string_view>
#include <vector>

#include "device/gpu/emulator.h"
#include "tape/node.h"

namespace ingot {

/// Those of the op of this name, best first; none for most ops. Here: for the simulated device, where they
/// refuse every call unless emulation() is on.
std::vector<Kernel> gpu_kernels(std::string_view op);

/// An op's kernels, best first, the reference last, with those of GPUs before the reference.
std::vector<Kernel> with_gpu_kernels(std::string_view op, std::vector<Kernel> kernels);

/// What gpu.cpp states of a kernel: which calls it takes, and the launches of each pass (nullptr: none).
struct GpuLaunches {
  const char* (*refuse)(const OpCall&);
  void (*forward)(const OpCall&);
  void (*backward_input)(const OpCall&) = nullptr;
  void (*backward_weight)(const OpCall&) = nullptr;
  ReadableFormats formats = {};
};

/// Runs the launches of a call in the emulator: now where its tensors are on the host, as tests have them;
/// else as a kernel of the simulated device.
void run_emulated(const Op& op, const GpuLaunches& launches, const OpCall& call, Direction direction);

/// For gpu.cpp: a kernel of the CUDA name, emulated.
template <const Op& (*kOp)(), const GpuLaunches& kLaunches>
Kernel emulated_kernel() {
  Kernel k{.name = "cuda", .formats = kLaunches.formats, .device = DeviceKind::sim, .exact = true};
  k.refuse = [](const OpCall& call) {
    return emulation().on ? kLaunches.refuse(call) : "emulated kernels run where INGOT_EMULATE is set";
  };
  k.forward = [](const OpCall& call) { run_emulated(kOp(), kLaunches, call, Direction::forward); };
  if (kLaunches.backward_input != nullptr)
    k.backward_input = [](const OpCall& call) {
      run_emulated(kOp(), kLaunches, call, Direction::backward_input);
    };
  if (kLaunches.backward_weight != nullptr)
    k.backward_weight = [](const OpCall& call) {
      run_emulated(kOp(), kLaunches, call, Direction::backward_weight);
    };
  return k;
}

/// For gpu.cpp: the address that a kernel of the device reads or writes; nullptr for an undefined tensor.
template <class T>
T* device_address(const Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data) : nullptr;
}

}  // namespace ingot
