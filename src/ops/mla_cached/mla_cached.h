// mla_cached: multi-head latent attention of new tokens over a sequence whose cache holds [c ; k_rope] per
// token and nothing else ([DeepSeek-V2] §2.1; ops/mla makes c and k_rope). With W_h = [U_h ; V_h] the rows
// of head h of the up-projection ([N + V, C]), there are two ways:
//
//   materialised  k_h = [U_h c ; k_rope] and v_h = V_h c of every cached token are recomputed as training
//                 computes them: the same products with the same roundings, so o has the bits of mla_pack and
//                 ops/attention
//   absorbed      scores (U_h^T q_nope) . c + q_rope . k_rope, output V_h (sum_j p_j c_j): the same function
//                 with other roundings; the work per cached token does not contain the up-projection
//
// Either way a token's bits do not depend on packing or chunks. The op serves spans with a state only,
// appends to it, and has no backward (neither has ops/attention through a state).
//
// Shapes: H heads; N nope, P rope and V value channels per head; C latent channels.
//   q [T, H (N + P)] rotated, c [T, C], k_rope [T, P] of one floating type, kv_up [H (N + V), C]
//   -> o [T, H V] (q's type), max_logit [H] (f32, or f64)
#pragma once
#include "ops/sequence/batch_layout.h"
#include "tape/tape.h"

namespace ingot {

/// Inputs, in order.
namespace mla_cached_slot {
enum In : uint32_t { kQ, kC, kKRope, kKvUp };
}

struct MlaCachedAttr {
  int64_t heads = 0, nope = 0, rope = 0, value = 0, rank = 0;  ///< H, N, P, V, C
  double scale = 1;
  int64_t window = 0;  ///< 0: none
  double softcap = 0;  ///< 0: none
  const BatchLayout* rows = nullptr;
  int64_t layer = 0;  ///< of the states
  bool absorb = false;

  /// First token that token t of a sequence sees.
  int64_t first_key(int64_t t) const { return window > 0 && t >= window ? t - window + 1 : 0; }
};
struct MlaCachedResult {
  Value o, max_logit;
};
MlaCachedResult mla_cached(Tape& tape, const MlaCachedAttr& attr, const Value& q, const Value& c,
                           const Value& k_rope, const Value& kv_up);

const Op& mla_cached_op();
Kernel mla_cached_reference();

}  // namespace ingot
