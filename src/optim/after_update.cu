// QK-clip and the balance of routers on a GPU.
#include "optim/balance_expert.h"
#include "optim/gpu_after_update.h"
#include "optim/gpu_chunk.h"
#include "optim/power.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kThreads = 128;

/// A number of each thread of a block. Sums of them are exact in any order: they are whole.
struct WholeNumbers {
  double of[kThreads];
};
/// All threads come here and know the sum.
INGOT_INLINE double sum_of_block(double own, WholeNumbers& numbers) {
  numbers.of[thread_index()] = own;
  sync_threads();
  double sum = 0;
  for (int i = 0; i < kThreads; ++i) sum += numbers.of[i];
  return sum;
}

/// The factors of a key head and of its query heads; returns how many of these are clipped.
INGOT_INLINE int factors_of_group(const GpuQkLayer& layer, double threshold, int64_t g, double* factors) {
  const int64_t group = layer.heads / layer.kv_heads, begin = g * group, end = begin + group;
  double* const query = factors + layer.query;
  double least = 1;
  int clipped = 0;
  for (int64_t h = begin; h < end; ++h) {
    const double top = layer.max_logit[h], eta = top > threshold ? threshold / top : 1.0;
    query[h] = eta;
    if (eta < least) least = eta;
    clipped += eta < 1 ? 1 : 0;
  }
  const double share = power(least, layer.key_share);
  factors[layer.key + g] = share;
  for (int64_t h = begin; h < end; ++h) query[h] /= share;
  return clipped;
}

/// One block: a thread a key head.
INGOT_KERNEL(kThreads)
qk_factors_kernel(const GpuQkFactors a) {
  INGOT_SHARED(WholeNumbers, numbers);
  if (a.decision->made == 0) return;
  int clipped = 0;
  for (int64_t l = 0; l < a.count; ++l)
    for (int64_t g = thread_index(); g < a.layers[l].kv_heads; g += kThreads)
      clipped += factors_of_group(a.layers[l], a.threshold, g, a.factors);
  const double all = sum_of_block(static_cast<double>(clipped), numbers);
  if (thread_index() == 0) *a.clipped += all;
}

/// A block a part.
INGOT_KERNEL(kChunkThreads)
qk_scale_kernel(const GpuQkParts a) {
  if (a.decision->made == 0) return;
  const GpuQkPart part = a.parts[block_index()];
  const double factor =
      (part.query >= 0 ? a.factors[part.query] : 1.0) * (part.key >= 0 ? a.factors[part.key] : 1.0);
  if (factor == 1.0) return;
  const float f = static_cast<float>(factor);
  for (int64_t i = thread_index(); i < part.count; i += kChunkThreads) part.weights[i] = part.weights[i] * f;
}

/// A block a layer.
INGOT_KERNEL(kThreads)
balance_kernel(const GpuBalance args) {
  INGOT_SHARED(WholeNumbers, numbers);
  if (args.decision->made == 0) return;
  const GpuBalanceLayer& layer = args.layers[block_index()];
  double own = 0;
  for (int64_t e = thread_index(); e < layer.experts; e += kThreads) own += layer.counts[e];
  const double total = sum_of_block(own, numbers);
  if (total == 0) return;
  if (layer.load != nullptr)
    for (int64_t e = thread_index(); e < layer.experts; e += kThreads)
      layer.load[e] = static_cast<float>(layer.counts[e] / total);
  if (!layer.moves_biases || args.scalars->balances == 0) return;
  const BalanceArgs a = layer.biases;
  const int64_t step = a.by_sign ? 0 : *a.step + 1;
  const AdamWFactors factors = a.by_sign ? AdamWFactors{} : balance_factors(a, step);
  for (int64_t e = thread_index(); e < a.experts; e += kThreads) balance_expert(a, factors, e, total);
  sync_threads();  // all have read the number
  if (thread_index() == 0 && !a.by_sign) *a.step = step;
}

}  // namespace

void launch_qk_factors(GpuStream stream, const GpuQkFactors& args) {
  launch("qk_factors", qk_factors_kernel, {1, kThreads}, stream, args);
}

void launch_qk_scale(GpuStream stream, const GpuQkParts& args) {
  launch("qk_scale", qk_scale_kernel, {args.count, kChunkThreads}, stream, args);
}

void launch_balance(GpuStream stream, const GpuBalance& args) {
  launch("balance", balance_kernel, {args.count, kThreads}, stream, args);
}

}  // namespace ingot::INGOT_ISA
