// permute / unpermute: rows to their experts and back. One map, built once, serves both and their backwards.
//
//   permute    rows are ordered by local expert, then by token, then by slot; row r holds x[token[r]] and the weight p of
//              that choice. Experts outside [first, first + E) are someone else's (expert parallelism), and -1 is no
//              choice: their slots get row -1. There is room for R = T * k rows; from offsets[E] on rows are
//              not written, p is 0, and nobody reads them.
//   bound      > 0: no expert has more rows than that (the caller has dropped the rest), so R = min(T * k, E * bound).
//   pad        every expert has exactly `bound` rows, the missing ones zero with weight 0: R = E * bound, all shapes and
//              offsets fixed (spec megatron-moe CP-2, with zero rows as fillers: their outputs and gradients are zero)
//   unpermute  y[t] = sum over k of rows[row_of_slot[t,k]], in slot order (ascending expert), fp32; slots with row -1 add
//              nothing. Without offsets all R rows get a gradient.
//
// Shapes: x_TD (any float), probs_TK (fp32, or f64), ids_TK (i32) -> rows_RD (x's type), p_R (probs' type),
// offsets (i32 [E+1]), token_R (i32, -1 for padding), row_TK (i32). unpermute: rows_RD, row_TK, token_R, offsets
// (optional) -> y_TD.
// The map is a counting sort: stable, the same for any number of threads (spec megatron-moe PM-1, PM-2).
#pragma once
#include "tape/tape.h"

namespace ingot {

struct PermuteAttr {
  int32_t first = 0;    ///< first local expert
  int32_t experts = 0;  ///< local experts E
  int64_t bound = 0;    ///< most rows of an expert; 0: none
  bool pad = false;     ///< needs a bound
};

struct Permutation {
  Value rows_RD, p_R, offsets, token_R, row_TK;
};

Permutation permute(Tape& tape, const PermuteAttr& attr, const Value& x_TD, const Value& probs_TK,
                    const Value& ids_TK);

struct UnpermuteAttr {
  DType out = DType::f32;
};

Value unpermute(Tape& tape, DType out, const Value& rows_RD, const Value& row_TK, const Value& token_R,
                const Value& offsets = {});

const Op& permute_op();
const Op& unpermute_op();

}  // namespace ingot
