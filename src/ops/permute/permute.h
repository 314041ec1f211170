// permute / unpermute: rows to their experts and back. One map, built once, serves both ops and their
// backwards.
//
//   permute    orders rows by local expert, then by token, then by slot (a token's k choices). Row r holds
//              x[token[r]] and the weight p of that choice. Experts outside [first, first + E) belong to
//              other ranks, and -1 is no choice: their slots get row -1. Rows from offsets[E] on are padding:
//              not written, p = 0, not read.
//   bound      > 0: no expert has more rows (the caller has dropped the rest), so R = min(T k, E bound); else
//              R = T k
//   capacity   > 0: R is at most that, where no routing has more rows (as many experts as a token can have
//              here), or a bound is set; more rows are an Error
//   pad        every expert has exactly `bound` rows, the missing ones zero with weight 0: R = E bound. All
//              shapes and offsets are then fixed; the padding has zero outputs and gradients. ([Megatron-MoE]
//              §7.1, §4.3.6)
//   unpermute  y[t] = sum over k of rows[row[t, k]], in slot order (ascending expert), in fp32; slots with
//              row -1 add nothing. Without offsets all R rows get a gradient.
//
// Shapes: permute: x_TD (any float), probs_TK (f32, or f64), ids_TK (i32)
//           -> rows_RD (x's type), p_R (probs' type), offsets (i32 [E + 1]), token_R (i32, -1: padding),
//           row_TK (i32)
//         unpermute: rows_RD, row_TK, token_R, offsets (optional) -> y_TD (attr.out)
// The map is a counting sort: stable, and the same for any number of threads.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct PermuteAttr {
  int32_t first = 0;     ///< first local expert
  int32_t experts = 0;   ///< local experts E
  int64_t bound = 0;     ///< most rows of an expert; 0: none
  bool pad = false;      ///< needs a bound
  int64_t capacity = 0;  ///< most rows of all experts; 0: none
  double expected = 0;   ///< rows of an even routing, for costs of dry runs; 0: all
};

struct Permutation {
  Value rows_RD, p_R, offsets, token_R, row_TK;
};

Permutation permute(Tape& tape, const PermuteAttr& attr, const Value& x_TD, const Value& probs_TK,
                    const Value& ids_TK);

struct UnpermuteAttr {
  DType out = DType::f32;
  double expected = 0;  ///< see PermuteAttr
};

Value unpermute(Tape& tape, DType out, const Value& rows_RD, const Value& row_TK, const Value& token_R,
                const Value& offsets = {}, double expected = 0);

const Op& permute_op();
Kernel permute_reference();
const Op& unpermute_op();
Kernel unpermute_reference();

/// The reason why fast kernels of permute do not take the call, or nullptr.
const char* refuse_permute(const OpCall& call);

/// Fills offsets [E+1], token_R and row_TK of permute's forward from ids_TK, for both kernels. An id that is
/// no expert of the model's is a bug of the caller.
void build_row_map(const OpCall& call);

}  // namespace ingot
