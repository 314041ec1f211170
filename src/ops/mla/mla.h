// mla: multi-head latent attention ([DeepSeek-V2] §2.1). Keys and values of all heads are made from one
// short vector per token, the latent c, and one rotated key k_rope that all heads share. Three ops around the
// products (nn/latent_attention.h composes them); the third is ops/mla_cached.
//
//   mla_latents   [q_latent | c | k_rope] as projected -> q_latent and c normed, k_rope rotated:
//                 x <- x r w, r = 1 / sqrt(mean x^2 + eps), on the first two; rotation of k_rope
//   mla_pack      q_h = [q_nope ; q_rope], kv_h = [k_nope ; v] -> packed rows for ops/attention:
//                 q_h = [q_nope ; rotated q_rope], k_h = [k_nope ; k_rope], v_h
//
// Shapes: H heads; N nope, P rope and V value channels per head; C latent channels; Q query latent channels
//   (0: none). mla_latents: down_TL, L = Q + C + P; positions_T (i32); q_weight_Q; kv_weight_C
//                -> q_latent [T, Q], c [T, C], k_rope [T, P] of attr.out; rstd [T, 2] (no gradient)
//   mla_pack:    q [T, H (N + P)], kv [T, H (N + V)], k_rope [T, P], positions_T
//                -> [T, H (N + P) + H (N + P) + H V]; without kv and k_rope: the rotated queries alone. One
//                floating type.
// All arithmetic is in fp32 with one rounding at the end. Gradients of norm weights are sums over tokens in
// chunks of 64 rows combined in order; the gradient of k_rope sums over ascending heads.
#pragma once
#include "ops/sequence/rotary.h"
#include "tape/tape.h"

namespace ingot {

/// Slots, in order.
namespace mla_latents_slot {
enum In : uint32_t { kDown, kPositions, kQWeight, kKvWeight };
enum Out : uint32_t { kQLatent, kC, kKRope, kRstd };
}  // namespace mla_latents_slot
namespace mla_pack_slot {
enum In : uint32_t { kQ, kPositions, kKv, kKRope };
}

struct MlaLatentsAttr {
  int64_t q_rank = 0;      ///< Q; 0: queries have no latent
  int64_t kv_rank = 0;     ///< C
  int64_t rope = 0;        ///< P
  RotaryRule rotary = {};  ///< dims P, or 0: no rotation
  double eps = 1e-6;
  DType out = DType::f32;
};
struct MlaLatents {
  Value q_latent, c, k_rope;
};
MlaLatents mla_latents(Tape& tape, const MlaLatentsAttr& attr, const Value& down_TL, const Value& positions_T,
                       const Value& q_weight_Q, const Value& kv_weight_C);

struct MlaPackAttr {
  int64_t heads = 0, nope = 0, rope = 0, value = 0;  ///< H, N, P, V
  RotaryRule rotary = {};                            ///< dims P, or 0: no rotation
};
Value mla_pack(Tape& tape, const MlaPackAttr& attr, const Value& q, const Value& positions_T,
               const Value& kv = {}, const Value& k_rope = {});

const Op& mla_latents_op();
Kernel mla_latents_reference();
const Op& mla_pack_op();
Kernel mla_pack_reference();

}  // namespace ingot
