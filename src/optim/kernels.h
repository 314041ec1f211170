// The optimizers' memory-bound inner loops, compiled once per instruction set (isa_adamw.cpp, isa_muon.cpp,
// isa_balance.cpp). Each call handles one contiguous chunk on one thread; callers cut tensors into chunks of
// kOptimChunk, fixed by the tensor's size, and combine partial results in chunk order, so results do not
// depend on threads.
//
// All arithmetic is IEEE add, multiply, divide and square root in the written order, no fma: the same bits on
// every instruction set. Sums use 16 virtual lanes (element i goes to lane i mod 16) and one fixed tree.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/gpu/anywhere.h"
#include "device/simd/isa.h"

namespace ingot {

constexpr int64_t kOptimChunk = 16384;

/// The factor of decoupled weight decay, 1 - lr wd, rounded once.
INGOT_ANYWHERE float decay_factor(double lr, double weight_decay) {
  return static_cast<float>(1.0 - lr * weight_decay);
}

/// What one chunk changed: sum of (w_new - w_old)^2 and sum of w_new^2.
struct UpdateSums {
  float update_sq = 0;
  float weight_sq = 0;
};

/// Part of stored values: float, or bf16 with the key of its stochastic rounding (base/philox.h).
struct StoredPart {
  void* data = nullptr;  ///< of the chunk's first element; null: there is none
  bool is_bf16 = false;
  bool stochastic = false;
  int64_t first = 0;  ///< the chunk's first element in the tensor
  uint32_t key0 = 0, key1 = 0, stream_low = 0, stream_high = 0;
};

/// What AdamW and AdEMAMix take from the number of a step (adamw.h).
struct AdamWNumbers {
  double inv_sqrt_correction2;  ///< 1 / sqrt(1 - beta2^t)
  double correction1;           ///< 1 - beta1^t
  double one_minus_beta3;       ///< of the slow average
  double alpha;                 ///< of the slow average, times correction1
};

/// One fused AdamW pass over `count` elements; see adamw.h for the formula.
struct AdamWChunk {
  StoredPart master;
  StoredPart grad;
  StoredPart exp_avg;
  StoredPart exp_avg_sq;
  StoredPart exp_avg_slow;  ///< AdEMAMix; absent: AdamW
  void* compute;            ///< compute copy to write, or null
  bool compute_bf16;        ///< else f32
  int64_t count;
  float grad_scale;  ///< unscale times clip factor
  float decay;       ///< decay_factor()
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inv_sqrt_correction2;
  float eps;
  float step_size;  ///< lr / correction1
  float one_minus_beta3;
  float alpha;
};

/// momentum <- beta * momentum + grad_weight * (grad_scale * grad);
/// input <- nesterov ? grad_weight * (grad_scale * grad) + beta * momentum : momentum.
/// `momentum` may be absent: input <- grad_scale * grad.
struct MomentumChunk {
  StoredPart momentum;
  StoredPart grad;
  float* input;
  int64_t count;
  float grad_scale;
  float beta;
  float grad_weight;  ///< 1 for the sum form, 1 - beta for the lerp form
  bool nesterov;
};

/// master <- decay * master - step_size * update, and the compute copy.
struct ApplyChunk {
  StoredPart master;
  const float* update;
  void* compute;
  bool compute_bf16;
  int64_t count;
  float decay;
  float step_size;
};

/// The biases of a router's experts, moved by how many choices each got; see balance.h for the rules.
struct BalanceArgs {
  const double* counts;  ///< [experts], whole numbers
  int64_t experts;
  int64_t by_sign;  ///< 1, else 0: a word, so that no bytes are without a value (KeptLists)
  double rate, beta1, beta2, eps;
  float* bias;                  ///< [experts]
  float *exp_avg, *exp_avg_sq;  ///< [experts]; not of the sign rule, as is the next
  int64_t* step;                ///< the number of updates
};

INGOT_ISA_KERNEL(UpdateSums, adamw_chunk, (const AdamWChunk& args))
INGOT_ISA_KERNEL(void, momentum_chunk, (const MomentumChunk& args))
INGOT_ISA_KERNEL(UpdateSums, apply_chunk, (const ApplyChunk& args))
/// Changes nothing where all counts are 0.
INGOT_ISA_KERNEL(void, balance_experts, (const BalanceArgs& args))
/// Sum of squares in double; not finite exactly when an element is not finite.
INGOT_ISA_KERNEL(double, sum_squares_chunk, (const float* x, int64_t count))
/// The same of stored values.
INGOT_ISA_KERNEL(double, sum_squares_of_stored, (const StoredPart& x, int64_t count))
/// Stored values as floats, and back with their rounding.
INGOT_ISA_KERNEL(void, load_values, (float* to, const StoredPart& from, int64_t count))
INGOT_ISA_KERNEL(void, store_values, (const StoredPart& to, const float* from, int64_t count))
/// y <- s * x. y may be x.
INGOT_ISA_KERNEL(void, scale_chunk, (float* y, const float* x, int64_t count, float s))
/// y <- b * x + c * y.
INGOT_ISA_KERNEL(void, combine_chunk, (float* y, const float* x, int64_t count, float b, float c))
/// y <- s * x, rounded to bf16.
INGOT_ISA_KERNEL(void, round_chunk, (bf16 * y, const float* x, int64_t count, float s))
/// y <- s * x.
INGOT_ISA_KERNEL(void, widen_chunk, (float* y, const bf16* x, int64_t count, float s))
/// p <- b * x + c * y, with y, each product and the sum rounded to bf16.
INGOT_ISA_KERNEL(void, combine_bf16_chunk,
                 (bf16 * p, const bf16* x, const float* y, int64_t count, float b, float c))

}  // namespace ingot
