// See memory_on_gpu.h.
#include "train/memory_on_gpu.h"

#include "device/cuda/cuda_device.h"
#include "optim/gpu_step.h"
#include "train/engine.h"

namespace ingot {

MemoryOnGpu memory_on_gpu(const TrainEngine& engine, int64_t activations) {
  MemoryOnGpu m{.activations = activations};
  const CudaDevice::Memory memory = cuda_device().memory();
  m.free = memory.free, m.all = memory.all;
  if (engine.device_of_weights() != DeviceKind::cuda) return m;
  m.weights = engine.model().bytes();
  m.gradients = engine.gradients().bytes();
  m.optimizer = engine.optimizer().state_bytes();
  if (engine.recipe().model_precision().compute == DType::bf16)
    m.rounded = m.weights / size_of(DType::f32) * size_of(DType::bf16);
  std::vector<ParamView> matrices;
  const Optimizer& optimizer = engine.optimizer();
  for (size_t i = 0; i < optimizer.params().size(); ++i)
    if (optimizer.groups()[i].optimizer == "muon") matrices.push_back(optimizer.params()[i]);
  m.scratch = gpu_muon_scratch_bytes(matrices);
  return m;
}

}  // namespace ingot
