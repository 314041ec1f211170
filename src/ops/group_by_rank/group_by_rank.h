// group_by_rank: tokens to the ranks that hold their experts, each token once per rank however many of its experts are
// there (spec megatron-moe DS-5). What travels is the row, its choices that live on that rank, and their weights.
//
//   Rank r of n = g c holds a c-th of the width of experts [i E / g, (i + 1) E / g), i = floor(r / c): with c copies (expert
//   tensor parallelism) a token goes to all c ranks of an expert. Rows are ordered by rank, then by token. A token goes to
//   at most M = min(k c, n) ranks, so there are S = T M row slots; those beyond the sum of rows_per_rank are padding.
//   row_TM    the rows of a token, ascending by rank; -1: no more. With token_S, what unpermute needs to bring sums back.
//   probs_SK, ids_SK  the token's choices on that rank in their places; elsewhere weight 0 and id -1
//
// Shapes: x_TD (any float), probs_TK (f32, or f64), ids_TK (i32; -1: no choice) -> rows_SD (x's type), probs_SK (probs'
// type), ids_SK, rows_per_rank (i32 [n]), token_S (i32, -1: padding), row_TM (i32).
// A row's gradients are added by rank, and so are those of a weight, which come back from c rows.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct GroupByRankAttr {
  int32_t ranks = 1;    ///< n
  int32_t experts = 0;  ///< E, a multiple of n / copies
  int32_t copies = 1;   ///< c, divides n

  int32_t rank_of(int32_t expert) const { return expert / (experts / (ranks / copies)) * copies; }  ///< the first of c
};

struct RankRows {
  Value rows_SD, probs_SK, ids_SK, rows_per_rank, token_S, row_TM;
};

RankRows group_by_rank(Tape& tape, const GroupByRankAttr& attr, const Value& x_TD, const Value& probs_TK,
                       const Value& ids_TK);

const Op& group_by_rank_op();

}  // namespace ingot
