// group_by_rank: tokens to the ranks that hold their experts, each token once per rank however many of its experts are
// there (spec megatron-moe DS-5). What travels is the row, its choices that live on that rank, and their weights.
//
//   Rank r of n = g c holds a c-th of the width of experts first + [i E / g, (i + 1) E / g), i = floor(r / c): with c copies
//   (expert tensor parallelism) a token goes to all c ranks of an expert. Rows are ordered by rank, then by token. A token goes
//   to at most M = min(k c, n) ranks, so there are S = T M row slots; those beyond the sum of rows_per_rank are padding.
//   blocks    (i32 [B], optional) x comes in B blocks of these numbers of tokens, with no choices behind them: then
//             rows_per_rank is [n, B], each block's rows apart
//   bound     > 0: a rank gets that many rows at most, so S = min(T M, n bound); choices of later tokens are not sent
//   row_TM    the rows of a token, ascending by rank; -1: no more, or not sent. With token_S, what unpermute needs to bring sums back.
//   probs_SK, ids_SK  the token's choices on that rank in their places; elsewhere weight 0 and id -1
//
// Shapes: x_TD (any float), probs_TK (f32, or f64), ids_TK (i32; -1: no choice) -> rows_SD (x's type), probs_SK (probs'
// type), ids_SK, rows_per_rank (i32 [n]), token_S (i32, -1: padding), row_TM (i32), dropped_1 (f32: choices not sent).
// A row's gradients are added by rank, and so are those of a weight, which come back from c rows.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct GroupByRankAttr {
  int32_t ranks = 1;    ///< n
  int32_t experts = 0;  ///< E, a multiple of n / copies
  int32_t copies = 1;   ///< c, divides n
  int32_t first = 0;    ///< of the experts
  int64_t bound = 0;    ///< 0: none

  /// The first of c.
  int32_t rank_of(int32_t expert) const { return (expert - first) / (experts / (ranks / copies)) * copies; }
};

struct RankRows {
  Value rows_SD, probs_SK, ids_SK, rows_per_rank, token_S, row_TM, dropped;
};

RankRows group_by_rank(Tape& tape, const GroupByRankAttr& attr, const Value& x_TD, const Value& probs_TK,
                       const Value& ids_TK, const Value& blocks = {});

const Op& group_by_rank_op();

}  // namespace ingot
