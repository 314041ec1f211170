// The kernels of GPUs, by op. Each is a file *.cu in its op's folder, which a GPU runs (device/cuda), or the
// emulator on the simulated device (device/gpu/emulator.h), and gpu.cpp, from tensors to its launches. They
// are exact, that is, have the CPU's bits, but for those on tensor cores, which are near the reference. On a
// GPU a kernel runs where it has proven that (ops/gpu_proof.h).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "device/gpu/emulator.h"
#include "tape/node.h"

namespace ingot {

/// Those of the op, or of the pair of ops, of this name, best first; none for most ops: for the simulated
/// device, where they refuse every call unless emulation() is on, and for CUDA.
std::vector<Kernel> gpu_kernels(std::string_view op);

/// An op's kernels, best first, the reference last, with those of GPUs before the reference.
std::vector<Kernel> with_gpu_kernels(std::string_view op, std::vector<Kernel> kernels);

/// Of an op's kernel: by it proofs and hashes of sources are known. OP, and OP_mma of that on tensor cores.
std::string gpu_kernel_name(std::string_view op, bool exact);
/// The kernels of the update of a step (optim/update_kernels.h), and those of Muon in bf16.
inline constexpr const char *kUpdateOnGpu = "update", *kUpdateOnTensorCores = "update_mma";
/// Of all kernels.
std::vector<std::string> gpu_kernel_names();

/// What gpu.cpp states of a kernel: which calls it takes, and the launches of each pass (nullptr: none).
struct GpuLaunches {
  const char* (*refuse)(const OpCall&);
  void (*forward)(const OpCall&);
  void (*backward_input)(const OpCall&) = nullptr;
  void (*backward_weight)(const OpCall&) = nullptr;
  ReadableFormats formats = {};
  bool exact = true;
  const char* pair = nullptr;  ///< the name of the pair of ops that it runs (tape/op.h); nullptr: it runs one
};
/// Of products on tensor cores (device/gemm/mma_block.h) by a weight, the input of that number.
constexpr GpuLaunches on_tensor_cores(GpuLaunches launches, uint32_t weight) {
  launches.formats.rounded = slot_bit(weight);
  launches.exact = false;
  return launches;
}

/// Why the kernel does not take a call; nullptr: it does.
const char* refuse_on_gpu(const Op& op, const GpuLaunches& launches, const OpCall& call);
/// Runs the launches of a call: on the GPU where its tensors lie there; else in the emulator, as a kernel of
/// the simulated device, or now where its tensors are on the host, as tests have them.
void run_on_gpu(const Op& op, const GpuLaunches& launches, const OpCall& call, Direction direction);

/// For gpu.cpp: a kernel of the CUDA name, for the simulated device, emulated where emulation() says so.
/// gpu_kernels() makes it a kernel of CUDA too.
template <const Op& (*kOp)(), const GpuLaunches& kLaunches>
Kernel emulated_kernel() {
  Kernel k{.name = kLaunches.exact ? "cuda" : "cuda_mma",
           .formats = kLaunches.formats,
           .device = DeviceKind::sim,
           .exact = kLaunches.exact};
  k.is_on = [] { return emulation().on && (kLaunches.exact || emulation().mma); };
  k.refuse = [](const OpCall& call) { return refuse_on_gpu(kOp(), kLaunches, call); };
  k.forward = [](const OpCall& call) { run_on_gpu(kOp(), kLaunches, call, Direction::forward); };
  if (kLaunches.backward_input != nullptr)
    k.backward_input = [](const OpCall& call) {
      run_on_gpu(kOp(), kLaunches, call, Direction::backward_input);
    };
  if (kLaunches.backward_weight != nullptr)
    k.backward_weight = [](const OpCall& call) {
      run_on_gpu(kOp(), kLaunches, call, Direction::backward_weight);
    };
  return k;
}

/// For gpu.cpp: the address that a kernel of the device reads or writes; nullptr for an undefined tensor.
template <class T>
T* device_address(const Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data) : nullptr;
}

}  // namespace ingot
