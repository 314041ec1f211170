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
  std::vector<double> factors(static_cast<size_t>(heads));
  std::vector<GpuQkLayer> layers;
  std::vector<GpuQkPart> parts;
  double* next = factors.data();
  for (const QkClipTask& t : tasks) {
    const QkClipLayer& layer = *t.layer;
    double *const query = next, *const key = query + layer.heads;
    next = key + layer.kv_heads;
    layers.push_back(
        {t.max_logit, layer.heads, layer.kv_heads, 1 - qk_clip_of(config, layer).alpha, query, key});
    for (const QkWeights& w : qk_weights(layer))
      for (int64_t at = 0; at < w.count; at += kOptimChunk)
        parts.push_back({static_cast<float*>(w.param->master.data) + w.first + at,
                         std::min(kOptimChunk, w.count - at), w.query < 0 ? nullptr : query + w.query,
                         w.key < 0 ? nullptr : key + w.key});
  }
  INGOT_GPU_CALL(launch_qk_factors)
  ({}, {layers.data(), static_cast<int64_t>(layers.size()), config.threshold, clipped});
  INGOT_GPU_CALL(launch_qk_scale)({}, parts.data(), static_cast<int64_t>(parts.size()));
}

void gpu_balance(std::span<const BalanceTask> tasks) {
  std::vector<GpuBalance> layers;
  for (const BalanceTask& t : tasks) {
    INGOT_CHECK(t.biases == nullptr || t.biases->experts == t.experts);
    layers.push_back(
        {t.counts, t.experts, t.load, t.biases != nullptr, t.biases != nullptr ? *t.biases : BalanceArgs{}});
  }
  INGOT_GPU_CALL(launch_balance)({}, layers.data(), static_cast<int64_t>(layers.size()));
}

}  // namespace ingot
