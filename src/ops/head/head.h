// head: from the final hidden state to per-token statistics of the next-token distribution. The one place
// where a vocabulary-wide row exists. Every objective is a pure function of these statistics and of data
// columns, and hands back one cotangent per statistic (docs/architecture.md, "The head contract").
//
//   l = x W^T (fp32 chains), soft-capped where attr.cap says so (ops/soft_cap.h);  logprob = l[target] - lse;  lse = log sum exp l;  entropy = lse - sum p l;
//   kl = sum q (log q - l + lse) for a teacher's probabilities q;  best = argmax l (ties to the lowest id)
//   d l = d_logprob (1[target] - p) + d_lse p - d_entropy p (l - lse + entropy) + d_kl (p - q), times the cap's slope
//
// Logits and statistics are fp32 whatever the operands. d l, an operand of the two gradient products, is rounded to bf16 once where x and
// W are both bf16 (as in PyTorch's autocast, which rounds l too), so that these products run at the rate of bf16.
//
// Three modes, chosen by the memory plan; the same bits from all of them:
//   store       keeps the logits [T,V] in fp32
//   recompute   keeps nothing; backward forms the logits again, `chunk` rows at a time
//   gradient    the cotangents are known before the forward: d_logprob = weight_T, d_lse = 2 z_coefficient
//   lse weight_T
//               (z-loss). Forward writes d_W and keeps d_x; nothing of width V outlives a chunk of rows.
// Shapes: x_TD, weight_VD (any float type), targets_T (i32; -1: masked, all its statistics and gradients are
// 0), teacher_TV (fp32, optional), weight_T (fp32; mode gradient only) -> logprob_T, lse_T, entropy_T, kl_T
// (fp32, or f64; entropy and kl are empty unless asked for), best_T (i32), logits, d_x (kept by the
// mode; else empty).
#pragma once
#include "ops/soft_cap.h"
#include "tape/tape.h"

namespace ingot {

enum class HeadMode : uint8_t { store, recompute, gradient };

struct HeadAttr {
  HeadMode mode = HeadMode::recompute;
  bool entropy = false;
  int32_t chunk = 0;         ///< rows whose logits exist at a time (recompute, gradient); 0: head_chunk()'s choice
  double z_coefficient = 0;  ///< mode gradient: z-loss coefficient
  SoftCap cap = {};
};

struct HeadResult {
  Value logprob_T, lse_T, entropy_T, kl_T, best_T;
};

HeadResult head(Tape& tape, const HeadAttr& attr, const Value& x_TD, const Value& weight_VD,
                const Value& targets_T, const Value& teacher_TV = {}, const Value& weight_T = {});

/// The logits of selected rows, for sampling: linear() with an fp32 result and the cap, named here so that callers
/// see that training and sampling share one product and one cap.
Value head_logits(Tape& tape, const SoftCap& cap, const Value& x_TD, const Value& weight_VD);

const Op& head_op();

}  // namespace ingot
