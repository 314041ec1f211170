// QK-clip and the balance of routers by the kernels of GPUs. See gpu_step.h.
#include "optim/gpu_after_update.h"

#include <algorithm>

#include "base/error.h"
#include "optim/gpu_step.h"
#include "optim/qk_clip.h"

namespace ingot {

void gpu_qk_clip(const QkClipConfig& config, std::span<const QkClipTask> tasks, double* clipped,
                 const DeviceStep& step) {
  GpuWorkspace memory(step.lists);
  int64_t factors = 0;
  std::vector<GpuQkLayer> layers;
  std::vector<GpuQkPart> parts;
  for (const QkClipTask& t : tasks) {
    const QkClipLayer& layer = *t.layer;
    const int64_t query = factors, key = query + layer.heads;
    factors = key + layer.kv_heads;
    layers.push_back(
        {t.max_logit, layer.heads, layer.kv_heads, 1 - qk_clip_of(config, layer).alpha, query, key});
    for (const QkWeights& w : qk_weights(layer))
      for (int64_t at = 0; at < w.count; at += kOptimChunk)
        parts.push_back({static_cast<float*>(w.param->master.data) + w.first + at,
                         std::min(kOptimChunk, w.count - at), w.query < 0 ? -1 : query + w.query,
                         w.key < 0 ? -1 : key + w.key});
  }
  auto* const all = memory.scratch<double>(factors);
  INGOT_GPU_CALL(launch_qk_factors)
  ({}, {memory.list(layers), std::ssize(layers), config.threshold, all, step.decision, clipped});
  INGOT_GPU_CALL(launch_qk_scale)({}, {memory.list(parts), std::ssize(parts), all, step.decision});
}

void gpu_balance(std::span<const BalanceTask> tasks, const DeviceStep& step) {
  GpuWorkspace memory(step.lists);
  std::vector<GpuBalanceLayer> layers;
  for (const BalanceTask& t : tasks) {
    INGOT_CHECK(t.biases == nullptr || t.biases->experts == t.experts);
    layers.push_back({t.counts, t.experts, t.load, t.biases != nullptr ? 1 : 0,
                      t.biases != nullptr ? *t.biases : BalanceArgs{}});
  }
  INGOT_GPU_CALL(launch_balance)
  ({}, {memory.list(layers), std::ssize(layers), step.scalars, step.decision});
}

}  // namespace ingot
