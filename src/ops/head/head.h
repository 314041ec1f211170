// head: from the final hidden state to per-token statistics of the next-token distribution. It is the only
// place where a row of the vocabulary's width exists. Every objective is a pure function of these statistics
// and of data columns, and returns one cotangent per statistic (docs/architecture.md, "The head contract").
//
//   l       = x W^T (fp32 FMA chains), soft-capped where attr.cap says so (device/simd/soft_cap.h), times
//             attr.scale (1 / temperature, a product in fp32)
//   lse     = log sum exp l
//   logprob = l[target] - lse
//   entropy = lse - sum p l,  p = exp(l - lse)
//   kl      = sum q (log q - l + lse) for a teacher's probabilities q
//   best    = argmax l (ties go to the lowest id)
//   d_l     = d_logprob (1[target] - p) + d_lse p - d_entropy p (l - lse + entropy) + d_kl (p - q),
//             times the slope of the cap and the scale
//
// Where a row has allowed ids, all of these are over them alone (d_l is 0 elsewhere): with the scale, the
// distribution that a token was drawn from with a temperature, top-k, top-p or min-p. The bits of logprob are
// those that the sampler reports (infer/row_sampler.h).
//
// Logits and statistics are fp32 whatever the operands. d_l is an operand of the two gradient products. Where
// x and W are both bf16 it is rounded to bf16 once (PyTorch's autocast rounds l too), so these products run
// at the bf16 rate.
//
// Three modes, chosen by the memory plan, give the same bits:
//   store       keeps the logits [T, V] in fp32.
//   recompute   keeps nothing; backward forms the logits again, `chunk` rows at a time.
//   gradient    for cotangents that are known before forward: d_logprob = weight_T and
//               d_lse = 2 z_coefficient lse weight_T (z-loss). Forward writes d_W and keeps d_x; nothing of
//               width V outlives a chunk of rows.
//
// Inputs:  x_TD, weight_VD (any float type); targets_T (i32; -1 is masked: its statistics and gradients are
//          0); teacher_TV (fp32, optional, not beside allowed ids); weight_T (fp32, mode gradient only);
//          allowed_T2 and allowed_N (i32, optional): row t allows allowed_N[allowed_T2[t][0] ..
//          allowed_T2[t][1]), ascending, its target among them; an empty range allows every id.
// Outputs: logprob_T, lse_T, entropy_T, kl_T (fp32, or f64; entropy and kl are empty unless asked for);
//          best_T (i32); logits and d_x (kept by the mode, else empty).
#pragma once
#include "base/enum.h"
#include "device/simd/soft_cap.h"
#include "tape/tape.h"

namespace ingot {

/// automatic: of recipes; the memory plan puts one of the others in its place (train/preflight.h).
enum class HeadMode : uint8_t { automatic, store, recompute, gradient };
constexpr auto enum_names(HeadMode) {
  return names_in_order<HeadMode>("auto", "store", "recompute", "gradient");
}

struct HeadAttr {
  HeadMode mode = HeadMode::recompute;
  bool entropy = false;
  int32_t chunk = 0;  ///< rows whose logits exist at a time (recompute, gradient); 0: as many as 32 MiB hold
  double z_coefficient = 0;  ///< mode gradient: z-loss coefficient
  SoftCap cap = {};
  float scale = 1;  ///< of the logits, above 0: 1 / temperature, rounded to fp32
};

/// Slots, in order.
namespace head_slot {
enum In : uint32_t { x, weight, targets, teacher, row_weight, allowed, allowed_ids };
enum Out : uint32_t { logprob, lse, entropy, kl, best, logits, d_x };
}  // namespace head_slot

struct HeadResult {
  Value logprob_T, lse_T, entropy_T, kl_T, best_T;
};

/// The ids that rows allow; undefined: all rows allow every id.
struct HeadAllowed {
  Value rows_T2, ids_N;
};

HeadResult head(Tape& tape, const HeadAttr& attr, const Value& x_TD, const Value& weight_VD,
                const Value& targets_T, const Value& teacher_TV = {}, const Value& weight_T = {},
                const HeadAllowed& allowed = {});

/// The logits of selected rows, for sampling: linear() with an fp32 result and the cap, named here so that
/// callers see that training and sampling share one product and one cap.
Value head_logits(Tape& tape, const SoftCap& cap, const Value& x_TD, const Value& weight_VD);

const Op& head_op();
Kernel head_reference();

}  // namespace ingot
