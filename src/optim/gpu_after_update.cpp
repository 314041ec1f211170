// QK-clip and the balance of routers by the kernels of GPUs. See gpu_step.h.
#include "optim/gpu_after_update.h"

#include <algorithm>

#include "base/error.h"
#include "optim/gpu_step.h"
#include "optim/qk_clip.h"

namespace ingot {

void gpu_qk_clip(const QkClipConfig& config, std::span<const QkClipTask> tasks, double* clipped) {
  int64_t heads = 0;
  for (const QkClipTask& t : tasks) heads += t.layer->heads + t.layer->kv_heads;
  GpuWorkspace memory;
  std::vector<GpuQkLayer> layers;
  std::vector<GpuQkPart> parts;
  double* next = memory.scratch<double>(heads);
  for (const QkClipTask& t : tasks) {
    const QkClipLayer& layer = *t.layer;
    double *const query = next, *const key = query + layer.heads;
    next = key + layer.kv_heads;
    layers.push_back({memory.list(std::span<const double>(t.max_logit, static_cast<size_t>(layer.heads))),
                      layer.heads, layer.kv_heads, 1 - qk_clip_of(config, layer).alpha, query, key});
    for (const QkWeights& w : qk_weights(layer))
      for (int64_t at = 0; at < w.count; at += kOptimChunk)
        parts.push_back({static_cast<float*>(w.param->master.data) + w.first + at,
                         std::min(kOptimChunk, w.count - at), w.query < 0 ? nullptr : query + w.query,
                         w.key < 0 ? nullptr : key + w.key});
  }
  double* const sum = memory.list(std::span<const double>(clipped, 1));
  INGOT_GPU_CALL(launch_qk_factors)({}, {memory.list(layers), std::ssize(layers), config.threshold, sum});
  INGOT_GPU_CALL(launch_qk_scale)({}, memory.list(parts), std::ssize(parts));
  *clipped = memory.read(sum, 1).front();
}

void gpu_balance(std::span<const BalanceTask> tasks) {
  GpuWorkspace memory;
  std::vector<GpuBalance> layers;
  for (const BalanceTask& t : tasks) {
    INGOT_CHECK(t.biases == nullptr || t.biases->experts == t.experts);
    const double* const counts =
        memory.list(std::span<const double>(t.counts, static_cast<size_t>(t.experts)));
    BalanceArgs biases = t.biases != nullptr ? *t.biases : BalanceArgs{};
    biases.counts = counts;
    layers.push_back({counts, t.experts, t.load, t.biases != nullptr, biases});
  }
  INGOT_GPU_CALL(launch_balance)({}, memory.list(layers), std::ssize(layers));
}

}  // namespace ingot
