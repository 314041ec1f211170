// Multi-head latent attention (MLA): keys and values of all heads are made from one short vector per token, the latent c,
// plus one rotated key k_rope that all heads share. Three ops around the products (nn/latent_attention.h composes them):
//
//   mla_latents   [q_latent | c | k_rope] as projected -> q_latent and c normed, k_rope rotated:
//                 x <- x r w, r = 1 / sqrt(mean x^2 + eps), on the first two parts;  rotation of k_rope
//   mla_pack      q_h = [q_nope ; q_rope], kv_h = [k_nope ; v] -> packed rows for ops/attention:
//                 q_h = [q_nope ; rotated q_rope], k_h = [k_nope ; k_rope], v_h
//   mla_cached    attention of new tokens over a sequence whose cache holds [c ; k_rope] per token and nothing else
//
// mla_cached, with W_h = [U_h ; V_h] the rows of head h of the up-projection ([N + V, C]), has two ways:
//   materialised  k_h = [U_h c ; k_rope] and v_h = V_h c of every cached token are made again as training makes them: the
//                 same products with the same roundings, so o has the bits of mla_pack and ops/attention
//   absorbed      scores (U_h^T q_nope) . c + q_rope . k_rope, output V_h (sum_j p_j c_j): the same function, other
//                 roundings; work per cached token does not contain the up-projection
// Either way a token's bits do not depend on packing or chunks. It serves spans with a state only, appends to it, and has
// no backward (ops/attention has none through a state either).
//
// Shapes: H heads, N nope, P rope and V value channels per head, C latent channels, Q query latent channels (0: none).
//   mla_latents: down_TL, L = Q + C + P, positions_T i32, q_weight_Q, kv_weight_C -> q_latent [T, Q], c [T, C], k_rope
//                [T, P] of attr.out, rstd [T, 2] (no gradient)
//   mla_pack:    q [T, H (N + P)], kv [T, H (N + V)], k_rope [T, P], positions_T -> [T, H (N + P) + H (N + P) + H V];
//                without kv and k_rope: the rotated queries alone. One floating type
//   mla_cached:  q [T, H (N + P)] rotated, c, k_rope, kv_up [H (N + V), C] -> o [T, H V], max_logit [H]
// All math in fp32 with one rounding at the end; gradients of norm weights are sums over tokens in chunks of 64 rows
// combined in order; the gradient of k_rope sums over ascending heads. Source: DeepSeek-V2 (2024) §2.1, DeepSeek-V3.
#pragma once
#include "ops/sequence/batch_layout.h"
#include "ops/sequence/rotary.h"
#include "tape/tape.h"

namespace ingot {

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

struct MlaCachedAttr {
  int64_t heads = 0, nope = 0, rope = 0, value = 0, rank = 0;  ///< H, N, P, V, C
  double scale = 1;
  int64_t window = 0;  ///< 0: none
  double softcap = 0;  ///< 0: none
  const BatchLayout* rows = nullptr;
  int64_t layer = 0;  ///< of the states
  bool absorb = false;
};
struct MlaCachedResult {
  Value o, max_logit;
};
MlaCachedResult mla_cached(Tape& tape, const MlaCachedAttr& attr, const Value& q, const Value& c,
                           const Value& k_rope, const Value& kv_up);

const Op& mla_latents_op();
const Op& mla_pack_op();
const Op& mla_cached_op();

}  // namespace ingot
