// See adamw.h.
#include "optim/adamw.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "optim/kernels.h"
#include "optim/work.h"

namespace ingot {
namespace {

/// Everything of a chunk but its place: scalars are computed in double and rounded once.
AdamWChunk scalars(const AdamWTensor& tensor, const AdamWConfig& c, const AdamWNumbers& n,
                   double grad_scale) {
  AdamWChunk a{};
  a.compute_bf16 = tensor.param->compute_dtype == DType::bf16;
  a.grad_scale = static_cast<float>(grad_scale);
  a.decay = decay_factor(tensor.lr, tensor.weight_decay);
  a.one_minus_beta1 = static_cast<float>(1.0 - c.beta1);
  a.beta2 = static_cast<float>(c.beta2);
  a.one_minus_beta2 = static_cast<float>(1.0 - c.beta2);
  a.inv_sqrt_correction2 = static_cast<float>(n.inv_sqrt_correction2);
  a.eps = static_cast<float>(c.eps);
  a.step_size = static_cast<float>(tensor.lr / n.correction1);
  a.one_minus_beta3 = static_cast<float>(n.one_minus_beta3);
  a.alpha = static_cast<float>(n.alpha);
  return a;
}

}  // namespace

void validate(const AdamWConfig& c) {
  if (!(c.beta1 >= 0 && c.beta1 < 1) || !(c.beta2 >= 0 && c.beta2 < 1))
    fail("AdamW has beta1 = {} and beta2 = {}, expected both in [0, 1)", c.beta1, c.beta2);
  if (!(c.eps > 0)) fail("AdamW has eps = {}, expected > 0", c.eps);
}

void validate(const AdEMAMixConfig& c) {
  if (!(c.beta3 >= 0 && c.beta3 < 1)) fail("AdEMAMix has beta3 = {}, expected in [0, 1)", c.beta3);
  if (!(c.alpha >= 0)) fail("AdEMAMix has alpha = {}, expected >= 0", c.alpha);
  if (c.warmup < 0) fail("AdEMAMix has warmup = {}, expected >= 0", c.warmup);
}

AdamWNumbers adamw_numbers(const AdamWConfig& c, const AdEMAMixConfig& mix, int64_t t) {
  INGOT_CHECK(t >= 1, "t = {}", t);
  const double time = static_cast<double>(t), correction1 = 1.0 - std::pow(c.beta1, time);
  return {1.0 / std::sqrt(1.0 - std::pow(c.beta2, time)), correction1, 1.0 - ademamix_beta3(mix, c.beta1, t),
          ademamix_alpha(mix, t) * correction1};
}

double ademamix_alpha(const AdEMAMixConfig& c, int64_t t) {
  return c.alpha * (t >= c.warmup ? 1.0 : static_cast<double>(t) / static_cast<double>(c.warmup));
}

double ademamix_beta3(const AdEMAMixConfig& c, double beta1, int64_t t) {
  if (t >= c.warmup || beta1 <= 0 || c.beta3 <= beta1) return c.beta3;
  const double x = static_cast<double>(t) / static_cast<double>(c.warmup);
  // The half-life ln(1/2) / ln(beta) moves linearly.
  const double slow = std::log(c.beta3), fast = std::log(beta1);
  return std::exp(fast * slow / ((1 - x) * slow + x * fast));
}

std::vector<UpdateStat> adamw_step(std::span<const AdamWTensor> tensors, const AdamWConfig& config, int64_t t,
                                   double grad_scale, const AdEMAMixConfig& mix) {
  const AdamWNumbers numbers = adamw_numbers(config, mix, t);
  std::vector<int64_t> counts;
  std::vector<AdamWChunk> base;
  for (const AdamWTensor& tensor : tensors) {
    counts.push_back(tensor.param->numel());
    base.push_back(scalars(tensor, config, numbers, grad_scale));
  }
  const TensorChunks chunks = chunks_of(std::move(counts));
  const auto part = [&](const Chunk& c) {
    const AdamWTensor& tensor = tensors[static_cast<size_t>(c.tensor)];
    AdamWChunk a = base[static_cast<size_t>(c.tensor)];
    a.master = part_of(tensor.param->master, c.begin);
    a.grad = part_of(tensor.param->grad, c.begin);
    a.exp_avg = part_of(tensor.exp_avg, c.begin);
    a.exp_avg_sq = part_of(tensor.exp_avg_sq, c.begin);
    a.exp_avg_slow = part_of(tensor.exp_avg_slow, c.begin);
    a.compute = at(tensor.param->compute, tensor.param->compute_dtype, c.begin);
    a.count = c.count;
    return a;
  };
  std::vector<UpdateSums> sums(chunks.list.size());
  parallel_for(chunks.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      sums[static_cast<size_t>(i)] = INGOT_ISA_CALL(adamw_chunk)(part(chunks[i]));
  });
  return combine(chunks, sums);
}

}  // namespace ingot
